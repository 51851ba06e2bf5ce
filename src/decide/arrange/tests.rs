//! Machines that obey, and one that does not.

use super::*;
use crate::model::power_mode::parse_conf;
use crate::model::settings::{Linear4bitSettings, WorkloadSettings};

use MachineSetting::{Clocks as ClocksSetting, GpuPm as Pm, PowerMode as Mode, Swap as SwapSetting};

fn modes() -> PowerModes {
    let mode = |id: u32, name: &str, mask: u32| {
        format!("< POWER_MODEL ID={id} NAME={name} >\nTPC_POWER_GATING TPC_PG_MASK {mask}\n")
    };
    parse_conf(&[mode(0, "15W", 240), mode(1, "25W", 240), mode(3, "7W", 252)].concat()).unwrap()
}

fn readings(of: &[(MachineSetting, &str)]) -> Readings {
    of.iter().map(|(setting, reading)| (*setting, Fact::Known((*reading).to_owned()))).collect()
}

fn set(setting: MachineSetting, old: &str, new: &str) -> SetChanged {
    SetChanged { what: setting.to_string(), old: old.into(), new: new.into() }
}

fn asks(of: &[(MachineSetting, &str)]) -> Asked {
    of.iter().map(|(setting, level)| (*setting, (*level).to_owned())).collect()
}

/// A machine that obeys: carries arrangements out until nothing is left to do, and tells what was done.
fn obey(asked: &Asked, machine: &mut BTreeMap<MachineSetting, String>, changed: &mut Changed) -> Vec<String> {
    let mut done = Vec::new();
    loop {
        let now = machine.iter().map(|(setting, value)| (*setting, Fact::Known(value.clone()))).collect();
        match arrange(asked, &now, changed, &modes()) {
            Arrangement::Done => return done,
            Arrangement::Set(change) => {
                done.push(format!("{} {}", change.what, change.new));
                changed.set(&change);
                let setting: MachineSetting = change.what.parse().unwrap();
                let value = if change.new == "max" { "9-9 Hz".to_owned() } else { change.new };
                machine.insert(setting, value);
            }
            Arrangement::Restore { setting, value } => {
                done.push(format!("{setting} back"));
                changed.restored(&Restored { what: setting.to_string(), value: value.clone() });
                machine.insert(setting, value);
            }
            other => panic!("{other:?}"),
        }
        assert!(done.len() < 10, "it ends: {done:?}");
    }
}

#[test]
fn a_cell_finds_the_machine_as_it_asks_and_other_settings_as_they_were_found() {
    let found: BTreeMap<MachineSetting, String> =
        [(Mode, "15W (0)"), (Pm, "auto"), (ClocksSetting, "1-9 Hz")].map(|(s, v)| (s, v.to_owned())).into();
    let (mut machine, mut changed) = (found.clone(), Changed::default());
    let mut done = |asked: &[(MachineSetting, &str)]| obey(&asks(asked), &mut machine, &mut changed);
    assert!(done(&[(Mode, "15W (0)")]).is_empty(), "what is so already is not set");
    assert_eq!(done(&[(Mode, "25W (1)"), (ClocksSetting, "max")]), ["power_mode 25W (1)", "clocks max"]);
    assert_eq!(done(&[(Mode, "25W (1)"), (Pm, "on")]), ["gpu_pm on", "clocks back"]);
    assert_eq!(done(&[(Mode, "25W (1)"), (Pm, "on"), (ClocksSetting, "max")]), ["clocks max"]);
    // The clocks of the old mode are put back in the old mode.
    assert_eq!(done(&[(ClocksSetting, "max")]), ["clocks back", "power_mode back", "gpu_pm back", "clocks max"]);
    assert_eq!(done(&[]), ["clocks back"]);
    assert_eq!((machine, changed), (found, Changed::default()));
}

#[test]
fn a_mode_with_another_mask_is_reached_by_a_reboot_and_left_by_one() {
    let mut changed = Changed::default();
    let step = |asked: &[(MachineSetting, &str)], now: &str, changed: &Changed| {
        arrange(&asks(asked), &readings(&[(Mode, now)]), changed, &modes())
    };
    let there = set(Mode, "15W (0)", "7W (3)");
    assert_eq!(step(&[(Mode, "7W (3)")], "15W (0)", &changed), Arrangement::Reboot(there.clone()));
    changed.set(&there);
    changed.booted();
    assert_eq!(step(&[(Mode, "7W (3)")], "7W (3)", &changed), Arrangement::Done);
    assert_eq!(step(&[], "7W (3)", &changed), Arrangement::Reboot(set(Mode, "7W (3)", "15W (0)")));
    let back = restore(&readings(&[(Mode, "7W (3)")]), &changed, &modes());
    assert_eq!(back, Arrangement::Reboot(set(Mode, "7W (3)", "15W (0)")));
    let restored = restore(&readings(&[(Mode, "15W (0)")]), &changed, &modes());
    assert_eq!(restored, Arrangement::Restore { setting: Mode, value: "15W (0)".into() });
}

#[test]
fn a_setting_that_does_not_obey_is_given_up_and_another_level_is_tried_anew() {
    let mut changed = Changed::default();
    let now = readings(&[(Pm, "auto")]);
    for _ in 0..SET_TRIES_MAX {
        let Arrangement::Set(change) = arrange(&asks(&[(Pm, "on")]), &now, &changed, &modes()) else { panic!() };
        changed.set(&change);
    }
    let given_up = arrange(&asks(&[(Pm, "on")]), &now, &changed, &modes());
    assert_eq!(given_up, Arrangement::Impossible("gpu_pm is auto after 3 attempts to make it on".into()));
    changed.in_force();
    assert!(matches!(arrange(&asks(&[(Pm, "on")]), &now, &changed, &modes()), Arrangement::Set(_)));
}

#[test]
fn what_cannot_be_read_is_not_set() {
    let denied = Readings::from([(Pm, Fact::Denied("no".into()))]);
    for (readings, words) in [(denied, "gpu_pm cannot be read: no"), (Readings::new(), "this machine has no gpu_pm")] {
        let step = arrange(&asks(&[(Pm, "on")]), &readings, &Changed::default(), &modes());
        assert_eq!(step, Arrangement::Impossible(words.into()));
    }
}

#[test]
fn a_boot_makes_everything_anew_but_the_power_mode() {
    let mut changed = Changed::default();
    for change in [set(Mode, "15W (0)", "25W (1)"), set(Pm, "auto", "on"), set(SwapSetting, "/a:1", "off")] {
        changed.set(&change);
    }
    changed.set(&SetChanged { what: "binary".into(), old: "a".into(), new: "b".into() });
    assert!(changed.powers_gpu());
    assert_eq!(changed.to_restore().map(|(setting, _)| setting).collect::<Vec<_>>(), [Pm, SwapSetting, Mode]);
    changed.booted();
    assert!(!changed.powers_gpu());
    assert_eq!(changed.to_restore().collect::<Vec<_>>(), [(Mode, "15W (0)")]);
}

#[test]
fn a_reading_fulfils_a_level_or_not() {
    for (setting, level, reading, expected) in [
        (Mode, "MAXN (0)", "MAXN (0)", true),
        (Mode, "MAXN (0)", "MAXN (2)", true),
        (Mode, "MAXN (0)", "15W (0)", false),
        (Mode, "MAXN (0)", "MAXN", false),
        (SwapSetting, "off", "none", true),
        (SwapSetting, "off", "/dev/zram0:5", false),
        (SwapSetting, "zram", "/dev/zram0:5 /dev/zram1:5", true),
        (SwapSetting, "zram", "/dev/zram0:5 /swapfile:-2", false),
        (SwapSetting, "zram", "none", false),
        (SwapSetting, "disk", "/swapfile:-2", true),
        (SwapSetting, "disk", "/swap/zram.img:-2", true),
        (SwapSetting, "disk", "/swapfile:-2 /dev/zram0:5", false),
        (ClocksSetting, "max", "306000000-1020000000 Hz", false),
        (ClocksSetting, "max", "1020000000-1020000000 Hz", true),
        (ClocksSetting, "gpu:612MHz", "306000000-612000000 Hz", true),
        (ClocksSetting, "gpu:612MHz", "306000000-612000001 Hz", false),
        (ClocksSetting, "gpu:612MHz", "nonsense", false),
    ] {
        assert_eq!(fulfils(setting, level, reading), expected, "{setting} {level} {reading}");
    }
    assert!(is_original(SwapSetting, "/a:-2 /dev/zram0:5", "/dev/zram0:5 /a:-3"));
    assert!(!is_original(SwapSetting, "/a:-2 /dev/zram0:5", "/dev/zram0:5"));
}

#[test]
fn a_cell_asks_for_what_its_settings_say() {
    let mut settings = Settings::of(WorkloadSettings::Linear4bit(Linear4bitSettings::of(Vec::new())));
    assert_eq!(asked(&settings, &modes()), Ok(Asked::new()));
    settings.power_mode = Some("3".into());
    settings.swap = Swap::Off;
    settings.gpu_pm = GpuPm::Auto;
    settings.clocks = Clocks::GpuMhz(612);
    let expected = asks(&[(Mode, "7W (3)"), (SwapSetting, "off"), (Pm, "auto"), (ClocksSetting, "gpu:612MHz")]);
    assert_eq!(asked(&settings, &modes()), Ok(expected));
    settings.power_mode = Some("MAXN".into());
    assert!(asked(&settings, &modes()).unwrap_err().to_string().contains("15W (0), 25W (1), 7W (3)"));
}
