//! Lines as tegrastats prints them. CPU lists are shortened; everything else is as published for these boards.

use super::*;
use crate::model::units::UptimeMs;

const AGX_ORIN_JETPACK_5: &str = "01-03-2023 16:07:54 RAM 2257/30536MB (lfb 5392x4MB) SWAP 0/15268MB (cached 0MB) CPU [0%@729,0%@729] EMC_FREQ 0%@204 GR3D_FREQ 0%@0 GR3D2_FREQ 0%@0 NVJPG1 729 VIC_FREQ 115 APE 233 CV0@-256C CPU@41.437C Tboard@29C SOC2@39.062C Tdiode@30.75C SOC0@39.031C CV1@-256C GPU@-256C tj@41.656C SOC1@38.937C CV2@-256C VDD_GPU_SOC 2390mW/2390mW VDD_CPU_CV 796mW/796mW VIN_SYS_5V0 3522mW/3522mW NC 0mW/0mW VDDQ_VDD2_1V8AO 301mW/301mW NC 0mW/0mW";
const ORIN_NANO_JETPACK_6_USER: &str = "04-27-2026 14:59:41 RAM 775/7620MB (lfb 3x4MB) SWAP 0/3810MB (cached 0MB) CPU [1%@729,0%@729,0%@729,0%@729,0%@729,0%@729] GR3D_FREQ 0% cpu@48.468C soc2@47.531C soc0@48.062C gpu@48.562C tj@49.156C soc1@49.156C VDD_IN 4761mW/4778mW VDD_CPU_GPU_CV 515mW/501mW VDD_SOC 1428mW/1428mW";
const ORIN_NANO_JETPACK_6_ROOT: &str = "11-15-2024 08:38:09 RAM 6185/7620MB (lfb 8x2MB) SWAP 851/3810MB (cached 1MB) CPU [15%@729,0%@729] EMC_FREQ 43%@2133 GR3D_FREQ 63%@[621] NVDEC off NVJPG off NVJPG1 off VIC off OFA off APE 200 cpu@53.968C soc2@52.437C soc0@50.75C gpu@53.343C tj@53.968C soc1@51.656C VDD_IN 12479mW/12479mW VDD_CPU_GPU_CV 4667mW/4667mW VDD_SOC 2817mW/2817mW";
const ORIN_NANO_JETPACK_7: &str = "10-01-2026 20:36:32 RAM 974/7546MB (lfb 6x4MB) SWAP 0/5821MB (cached 0MB) CPU [0%@729,0%@729] GR3D_FREQ 12% cpu@49.843C/49.843C soc2@49.156C/49.156C soc0@50.187C/50.187C gpu@50.875C/50.875C tj@50.875C/50.875C soc1@50.218C/50.218C VDD_IN 4548mW/4548mW/4548mW VDD_CPU_GPU_CV 483mW/483mW/483mW VDD_SOC 1489mW/1489mW/1489mW";
const AGX_ORIN_JETPACK_7: &str = "07-25-2026 09:08:28 RAM 20642/62817MB (lfb 1x2MB) CPU [23%@2201,0%@2201] EMC_FREQ 3%@3199 GR3D_FREQ 12%@[1300,1300] NVENC0 off NVDEC0 off NVJPG0 off NVJPG1 off VIC off OFA off NVDLA0 off NVDLA1 off PVA0_FREQ off APE 174 cpu@52.968C/52.968C soc2@48.406C/48.406C soc0@49.531C/49.531C gpu@47.625C/47.625C VDD_GPU_SOC 5139mW/5139mW/5139mW VDD_CPU_CV 3268mW/3268mW/3268mW VIN_SYS_5V0 5500mW/5500mW/5500mW";
const THOR_IDLE: &str = "04-21-2026 15:50:52 RAM 105265/125772MB (lfb 34x4MB) CPU [0%@972,0%@972] EMC_FREQ 0%@2750 GR3D_FREQ @[314,314,314] NVENC0_FREQ @314 NVENC1_FREQ @314 NVDEC0_FREQ @314 NVDEC1_FREQ @314 NVJPG0_FREQ @314 VIC off OFA_FREQ @315 PVA0_FREQ off APE 300 cpu@37.343C tj@38.875C soc012@37.468C gpu@38.875C soc345@37.406C VDD_GPU 1962mW/1962mW VDD_CPU_SOC_MSS 5887mW/5887mW VIN_SYS_5V0 5635mW/5635mW VIN 19780mW/19780mW";
const THOR_LOADED: &str = "08-08-2026 21:00:39 RAM 8353/125749MB (lfb 31x4MB) CPU [90%@2601,75%@2601,off,7%@2601] EMC_FREQ 34%@4266 GR3D_FREQ 87%@[1574,1574,1574] NVENC0_FREQ @1691 VIC off cpu@58.25C/61.75C tj@66.625C/66.625C gpu@56.937C/66.625C soc012@55.375C/58.781C soc345@55.812C/60.031C VDD_GPU 37939mW/8660mW/37939mW VDD_CPU_SOC_MSS 30059mW/12281mW/30059mW VIN_SYS_5V0 15486mW/7424mW/15486mW VIN 124486mW/36487mW/124486mW";

fn stats(line: &str) -> Tegrastats {
    parse(line).unwrap()
}

#[test]
fn memory_is_read_with_and_without_swap() {
    for (line, used, total, largest_free, swap) in [
        (AGX_ORIN_JETPACK_5, 2257, 30_536, (5392, 4), Some(0)),
        (ORIN_NANO_JETPACK_6_USER, 775, 7620, (3, 4), Some(0)),
        (ORIN_NANO_JETPACK_6_ROOT, 6185, 7620, (8, 2), Some(851)),
        (ORIN_NANO_JETPACK_7, 974, 7546, (6, 4), Some(0)),
        (AGX_ORIN_JETPACK_7, 20_642, 62_817, (1, 2), None),
        (THOR_IDLE, 105_265, 125_772, (34, 4), None),
        (THOR_LOADED, 8353, 125_749, (31, 4), None),
    ] {
        let stats = stats(line);
        assert_eq!((stats.ram_used, stats.ram_total), (Some(used * MIB), Some(total * MIB)), "{line}");
        assert_eq!(stats.largest_free, Some((largest_free.0, largest_free.1 * MIB)), "{line}");
        assert_eq!(stats.swap_used, swap.map(|swap| swap * MIB), "{line}");
    }
}

#[test]
fn every_form_of_the_gpus_load_and_clocks_is_read() {
    for (line, percent, mhz) in [
        (AGX_ORIN_JETPACK_5, Some(0), vec![0]),
        (ORIN_NANO_JETPACK_6_USER, Some(0), vec![]),
        (ORIN_NANO_JETPACK_6_ROOT, Some(63), vec![621]),
        (ORIN_NANO_JETPACK_7, Some(12), vec![]),
        (AGX_ORIN_JETPACK_7, Some(12), vec![1300, 1300]),
        (THOR_IDLE, None, vec![314, 314, 314]),
        (THOR_LOADED, Some(87), vec![1574, 1574, 1574]),
        ("GR3D_FREQ 45%@318", Some(45), vec![318]),
        ("GR3D_FREQ 0%@[0,0]", Some(0), vec![0, 0]),
    ] {
        let stats = stats(line);
        assert_eq!((stats.gpu_percent, stats.gpu_mhz), (percent, mhz), "{line}");
    }
}

#[test]
fn a_zone_that_is_off_is_no_reading() {
    let stats = stats(AGX_ORIN_JETPACK_5);
    assert_eq!(stats.temp_c["GPU"], None);
    assert_eq!(stats.temp_c["CV0"], None);
    assert_eq!(stats.temp_c["tj"], Some(41.656));
    assert_eq!(stats.temp_c["Tboard"], Some(29.0));
    assert_eq!(stats.temp_c.len(), 11);
}

#[test]
fn the_present_value_is_the_first_of_two_or_three() {
    assert_eq!(stats(ORIN_NANO_JETPACK_6_USER).power_mw["VDD_IN"], 4761);
    let thor = stats(THOR_LOADED);
    assert_eq!((thor.power_mw["VDD_GPU"], thor.power_mw["VIN"]), (37_939, 124_486));
    assert_eq!((thor.temp_c["cpu"], thor.temp_c["gpu"]), (Some(58.25), Some(56.937)));
    assert_eq!(thor.power_mw.len(), 4);
}

#[test]
fn a_rail_that_is_wired_to_nothing_is_left_out() {
    let labels: Vec<String> = stats(AGX_ORIN_JETPACK_5).power_mw.into_keys().collect();
    assert_eq!(labels, ["VDDQ_VDD2_1V8AO", "VDD_CPU_CV", "VDD_GPU_SOC", "VIN_SYS_5V0"]);
}

#[test]
fn a_cpu_may_be_off() {
    assert_eq!(stats(THOR_LOADED).cpu_mhz, [Some(2601), Some(2601), None, Some(2601)]);
    assert_eq!(stats(ORIN_NANO_JETPACK_6_USER).cpu_mhz.len(), 6);
}

#[test]
fn the_order_of_words_does_not_matter() {
    for line in [AGX_ORIN_JETPACK_5, ORIN_NANO_JETPACK_6_ROOT, THOR_LOADED] {
        let at = line.find(" CPU ").unwrap();
        let swapped = format!("{} {}", &line[at..], &line[..at]);
        assert_eq!(parse(&swapped), parse(line));
    }
}

#[test]
fn what_is_not_of_tegrastats_is_not_understood_and_a_torn_line_keeps_what_it_has() {
    for line in ["", "tegrastats: command not found", "RAM", "RAM x/yMB (lfb", "CPU [", "tj@C VDD_IN mW/mW"] {
        assert_eq!(parse(line), None, "{line:?}");
    }
    let torn = stats(&THOR_LOADED[..THOR_LOADED.find("mW/").unwrap()]);
    assert_eq!((torn.ram_total, torn.power_mw.len()), (Some(125_749 * MIB), 0));
}

#[test]
fn a_sample_takes_only_what_it_has_not() {
    let mut sample = Sample {
        temp_c: BTreeMap::from([("tj-thermal".to_owned(), Some(50.0))]),
        emc_hz: Some(1),
        ..Sample::empty(UptimeMs(7))
    };
    fill(&mut sample, &stats(ORIN_NANO_JETPACK_6_ROOT));
    assert_eq!((sample.temp_c.len(), sample.emc_hz), (1, Some(1)));
    assert_eq!(sample.rails["VDD_IN"], Some(Rail { mv: None, ma: None, mw: 12_479 }));
    assert_eq!(sample.gpu_hz, BTreeMap::from([("GR3D0".to_owned(), Some(621_000_000))]));
    assert_eq!((sample.gpu_load_permille, sample.cpu_khz["cpu1"]), (Some(630), Some(729_000)));
}
