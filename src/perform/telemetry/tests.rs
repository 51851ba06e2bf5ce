//! A constructed tree in the place of the machine: the paths of a Jetson Orin Nano under JetPack 6, with made-up values.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::sensors::Sensors;
use super::*;
use crate::model::telemetry::{Fan, Hottest, OverCurrent, PERIOD_MS, Rail, SAMPLE_VERSION, Sample};
use crate::model::units::UptimeMs;

const GPU: &str = "sys/devices/platform/bus@0/17000000.gpu";
const RAILS: &str = "sys/devices/platform/bus@0/c240000.i2c/i2c-1/1-0040/hwmon/hwmon1";
const OVER_CURRENT: &str = "sys/devices/platform/soctherm-oc-event/hwmon/hwmon3";

struct Board(tempfile::TempDir);

impl Board {
    fn new() -> Self {
        let board = Self(tempfile::tempdir().unwrap());
        for (zone, (kind, temp)) in
            [("cpu-thermal", "48468"), ("cv0-thermal", "-256000"), ("tj-thermal", "49156"), ("acpitz", "27800")]
                .into_iter()
                .enumerate()
        {
            board.write(&format!("sys/class/thermal/thermal_zone{zone}/type"), kind);
            board.write(&format!("sys/class/thermal/thermal_zone{zone}/temp"), temp);
        }
        // A second zone of the same type, and one whose reading fails: a directory opens and does not read.
        board.write("sys/class/thermal/thermal_zone10/type", "acpitz");
        board.write("sys/class/thermal/thermal_zone10/temp", "29800");
        board.write("sys/class/thermal/thermal_zone11/type", "gpu-thermal");
        fs::create_dir(board.path("sys/class/thermal/thermal_zone11/temp")).unwrap();
        for (device, kind, level) in [(0, "pwm-fan", "3"), (1, "cpu-throttle-alert", "2")] {
            board.write(&format!("sys/class/thermal/cooling_device{device}/type"), kind);
            board.write(&format!("sys/class/thermal/cooling_device{device}/cur_state"), level);
        }
        board.monitors();
        board.write(&format!("{GPU}/load"), "635");
        board.write(&format!("{GPU}/devfreq/17000000.gpu/cur_freq"), "621000000");
        board.link("sys/class/devfreq/17000000.gpu", &format!("{GPU}/devfreq/17000000.gpu"));
        board.write("sys/class/devfreq/1d84000.ufshc/cur_freq", "1");
        board.write("sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "729600");
        board.write("sys/kernel/debug/bpmp/debug/clk/emc/rate", "2133000000");
        board.write("sys/kernel/debug/nvmap/iovmm/clients", "CLIENT PROCESS PID SIZE\ntotal 1024K");
        board.write("proc/meminfo", "MemFree: 100 kB\nMemAvailable: 200 kB\nSwapTotal: 30 kB\nSwapFree: 20 kB");
        board.write("proc/buddyinfo", "Node 0, zone Normal 7 3 1 0");
        board.write(
            "proc/pressure/memory",
            "some avg10=1.50 avg60=0 avg300=0 total=9\nfull avg10=0.50 avg60=0 avg300=0 total=4",
        );
        board
    }

    fn monitors(&self) {
        let dirs = [
            ("hwmon0", "sys/devices/platform/pwm-fan/hwmon/hwmon0", "pwmfan"),
            ("hwmon1", RAILS, "ina3221"),
            ("hwmon2", "sys/devices/platform/bus@0/39c0000.tachometer/hwmon/hwmon2", "pwm_tach"),
            ("hwmon3", OVER_CURRENT, "soctherm_oc"),
        ];
        for (entry, dir, name) in dirs {
            self.write(&format!("{dir}/name"), name);
            self.link(&format!("sys/class/hwmon/{entry}"), dir);
        }
        self.write(&format!("{}/pwm1", dirs[0].1), "73");
        self.write(&format!("{}/rpm", dirs[2].1), "2210");
        for (channel, label, mv, ma) in
            [(1, "VDD_IN", "5032", "946"), (2, "NC", "0", "0"), (3, "VDD_SOC", "5032", "284")]
        {
            self.write(&format!("{RAILS}/in{channel}_label"), label);
            self.write(&format!("{RAILS}/in{channel}_input"), mv);
            self.write(&format!("{RAILS}/curr{channel}_input"), ma);
        }
        self.write(&format!("{RAILS}/in7_label"), "sum of shunt voltages");
        self.write(&format!("{OVER_CURRENT}/oc3_event_cnt"), "12");
        self.write(&format!("{OVER_CURRENT}/oc3_throt_en"), "1");
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.0.path().join(relative)
    }

    fn write(&self, relative: &str, text: &str) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn link(&self, relative: &str, to: &str) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir_all(self.path(to)).unwrap();
        std::os::unix::fs::symlink(self.path(to), path).unwrap();
    }

    fn sysroot(&self) -> Sysroot {
        Sysroot::new(self.0.path().to_owned())
    }
}

fn trial() -> (tempfile::TempDir, impl Fn() -> Vec<Sample>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("telemetry.jsonl");
    let samples = move || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    (dir, samples)
}

#[test]
fn every_sensor_of_a_board_is_read_and_called_by_what_it_says_it_is() {
    let board = Board::new();
    let sample = Sensors::discover(&board.sysroot()).read(UptimeMs(7), GpuLoad::Read);
    let temp_c: Vec<_> = sample.temp_c.iter().map(|(zone, temp_c)| (zone.as_str(), *temp_c)).collect();
    assert_eq!(
        temp_c,
        [
            ("acpitz", Some(27.8)),
            ("acpitz#2", Some(29.8)),
            ("cpu-thermal", Some(48.468)),
            ("cv0-thermal", None),
            ("gpu-thermal", None),
            ("tj-thermal", Some(49.156)),
        ]
    );
    assert_eq!(sample.rails.keys().collect::<Vec<_>>(), ["VDD_IN", "VDD_SOC"]);
    assert_eq!(sample.rails["VDD_IN"], Some(Rail { mv: Some(5032), ma: Some(946), mw: 4760 }));
    assert_eq!(sample.cpu_khz["policy0"], Some(729_600));
    assert_eq!(sample.gpu_hz.iter().next(), Some((&"17000000.gpu".to_owned(), &Some(621_000_000))));
    assert_eq!((sample.gpu_hz.len(), sample.gpu_load_permille, sample.emc_hz), (1, Some(635), Some(2_133_000_000)));
    assert_eq!(sample.throttle.iter().next(), Some((&"cpu-throttle-alert".to_owned(), &Some(2))));
    assert_eq!(sample.throttle.len(), 1, "a fan that turns is not throttling");
    assert_eq!(sample.over_current["oc3"], OverCurrent { events: Some(12), throttles: Some(1) });
    assert_eq!((sample.memory.available, sample.memory.free), (Some(200 * 1024), Some(100 * 1024)));
    assert_eq!((sample.memory.swap_used, sample.memory.nvmap), (Some(10 * 1024), Some(1024 * 1024)));
    assert_eq!(sample.memory.largest_free_block, Some(4 * rustix::param::page_size() as u64));
    assert_eq!(sample.pressure.memory.unwrap().full_us, Some(4));
    assert_eq!(sample.pressure.io, None);
    assert_eq!(sample.fan, Fan { pwm: Some(73), rpm: Some(2210) });
}

#[test]
fn the_gpus_load_is_not_read_where_that_would_keep_it_awake() {
    let board = Board::new();
    let sample = Sensors::discover(&board.sysroot()).read(UptimeMs(7), GpuLoad::LeftAlone);
    assert_eq!(sample.gpu_load_permille, None);
    assert_eq!(sample.gpu_hz["17000000.gpu"], Some(621_000_000));
}

#[test]
fn a_gpu_that_powers_on_during_a_trial_is_found() {
    let board = Board::new();
    fs::remove_file(board.path("sys/class/devfreq/17000000.gpu")).unwrap();
    let mut sensors = Sensors::discover(&board.sysroot());
    assert_eq!(sensors.read(UptimeMs(1), GpuLoad::Read).gpu_hz.len(), 0);
    board.link("sys/class/devfreq/17000000.gpu", &format!("{GPU}/devfreq/17000000.gpu"));
    assert_eq!(sensors.read(UptimeMs(2), GpuLoad::Read).gpu_hz["17000000.gpu"], Some(621_000_000));
}

#[test]
fn a_machine_without_sensors_still_has_every_key() {
    let (root, trial) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let summary = measure(&Sysroot::new(root.path().to_owned()), trial.path(), 1).unwrap();
    assert_eq!((summary.samples, summary.hottest, summary.available_min), (1, None, None));
    let line = fs::read_to_string(trial.path().join("telemetry.jsonl")).unwrap();
    assert!(line.starts_with("{\"uptime_ms\":") && line.ends_with("}\n"), "{line}");
    for key in [
        "v",
        "temp_c",
        "rails",
        "cpu_khz",
        "gpu_hz",
        "gpu_load_permille",
        "emc_hz",
        "throttle",
        "over_current",
        "memory",
        "pressure",
        "fan",
    ] {
        assert!(line.contains(&format!("\"{key}\":")), "{key} is not in {line}");
    }
}

#[test]
fn a_trial_is_sampled_from_its_first_moment_at_a_steady_beat() {
    let board = Board::new();
    let mut telemetry = Telemetry::new(board.sysroot());
    for _ in 0..2 {
        let (dir, samples) = trial();
        telemetry.begin(dir.path(), GpuLoad::Read).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while samples().len() < 3 && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        telemetry.sync().unwrap();
        let summary = telemetry.finish().unwrap();
        let samples = samples();
        assert!(samples.len() >= 3);
        assert_eq!(summary.samples, samples.len() as u64);
        assert_eq!(summary.hottest, Some(Hottest { zone: "tj-thermal".into(), temp_c: 49.156 }));
        let took = samples[2].uptime_ms.since(samples[0].uptime_ms).as_millis() as u64;
        assert!(took >= 2 * PERIOD_MS - 20 && (took < 3 * PERIOD_MS || summary.missed > 0), "{took} ms");
        assert!(samples.iter().all(|sample| sample.v == SAMPLE_VERSION));
    }
    assert_eq!(telemetry.finish(), None, "no trial runs");
}

#[test]
fn a_sensor_that_never_answers_holds_neither_the_journal_nor_the_trial() {
    let board = Board::new();
    // Opening a pipe that nobody writes to waits for ever, as a read of hung firmware does.
    let path = board.path("sys/class/thermal/thermal_zone0/temp");
    fs::remove_file(&path).unwrap();
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let mut telemetry = Telemetry::new(board.sysroot());
    for _ in 0..2 {
        let (dir, _) = trial();
        let begin = Instant::now();
        telemetry.begin(dir.path(), GpuLoad::Read).unwrap();
        telemetry.sync().unwrap();
        let summary = telemetry.finish().unwrap();
        assert_eq!((summary.samples, summary.missed), (0, 1));
        assert!(begin.elapsed() < SUMMARY_WAIT + Duration::from_secs(5));
    }
}
