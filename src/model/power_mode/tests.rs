//! Constructed configurations of three boards, and every form of an answer.

use super::*;

/// The constructed configuration of a board.
fn board(name: &str, conf: &str) -> PowerModes {
    let path = format!("{}/tests/fixtures/boards/{name}/etc/nvpmodel/{conf}", env!("CARGO_MANIFEST_DIR"));
    parse_conf(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn boards() -> [(PowerModes, &'static [&'static str], &'static str); 3] {
    [
        (
            board("orin-nano-super-jp62", "nvpmodel_p3767_0003_super.conf"),
            &["15W (0)", "25W (1)", "MAXN_SUPER (2)", "7W (3)"],
            "25W (1)",
        ),
        (
            board("agx-orin-jp5", "nvpmodel_p3701_0000.conf"),
            &["MAXN (0)", "MODE_15W (1)", "MODE_30W (2)", "MODE_50W (3)"],
            "MODE_30W (2)",
        ),
        (board("thor-jp7", "nvpmodel_p3834_0008.conf"), &["MAXN (0)", "120W (1)", "90W (2)", "70W (3)"], "120W (1)"),
    ]
}

#[test]
fn each_board_has_its_modes_and_its_default() {
    for (modes, names, default) in boards() {
        assert!(modes.iter().map(PowerMode::to_string).eq(names.iter().copied()), "{modes:?}");
        assert_eq!(modes.default_mode().unwrap().to_string(), default);
    }
}

#[test]
fn a_switch_needs_a_reboot_exactly_if_a_mask_differs() {
    // Every pair of ids that are live switches in both directions; all others are reboots.
    let live: [&[(u32, u32)]; 3] = [&[(0, 1), (0, 2), (1, 2)], &[(0, 3)], &[(0, 1), (2, 3)]];
    for ((modes, ..), live) in boards().iter().zip(live) {
        for from in modes.iter() {
            for to in modes.iter() {
                let pair = (from.id.min(to.id), from.id.max(to.id));
                let expected = from.id != to.id && !live.contains(&pair);
                assert_eq!(modes.needs_reboot(from, to), expected, "{from} to {to}");
            }
        }
    }
}

#[test]
fn what_is_not_known_of_a_mask_asks_for_a_reboot() {
    let text = "< POWER_MODEL ID=0 NAME=A >\nTPC_POWER_GATING TPC_PG_MASK 0xf0\n\
                < POWER_MODEL ID=4 NAME=B >\nGPU MAX_FREQ -1\n\
                < POWER_MODEL ID=9 NAME=C >\nTPC_POWER_GATING TPC_PG_MASK 240\n";
    let modes = parse_conf(text).unwrap();
    let mode = |name: &str| modes.find(name).unwrap();
    assert!(!modes.needs_reboot(mode("A"), mode("B")), "what a mode does not name it leaves");
    assert!(modes.needs_reboot(mode("B"), mode("A")), "nobody knows the mask that B left");
    assert!(!modes.needs_reboot(mode("A"), mode("C")), "0xf0 is 240");
    let stranger = PowerMode { name: "D".into(), id: 4 };
    assert!(modes.needs_reboot(&stranger, mode("B")) && modes.needs_reboot(mode("A"), &stranger));
    assert!(!modes.needs_reboot(&stranger, &stranger), "to stay needs nothing");
}

#[test]
fn a_mode_is_meant_by_its_name_and_else_by_its_id() {
    let modes =
        parse_conf("<POWER_MODEL ID=0 NAME=15W>\n< POWER_MODEL ID=2 NAME=1 >\n<POWER_MODEL ID=1 NAME=X>").unwrap();
    let meant = |asked: &str| modes.find(asked).map(PowerMode::to_string);
    assert_eq!(meant("15W").unwrap(), "15W (0)");
    assert_eq!(meant("0").unwrap(), "15W (0)");
    assert_eq!(meant("1").unwrap(), "1 (2)", "a name goes before an id");
    for asked in ["MAXN", "3", "", "15w"] {
        let error = meant(asked).unwrap_err().to_string();
        assert_eq!(error, format!("power mode {asked:?} is none of this board's: 15W (0), 1 (2), X (1)"));
    }
}

#[test]
fn a_mode_is_written_and_read_back() {
    let mode = PowerMode { name: "A (b)".into(), id: 7 };
    assert_eq!(mode.to_string().parse(), Ok(mode));
    for text in ["", "MAXN", "MAXN ()", "MAXN (x)", "(2)", "MAXN(2)"] {
        assert_eq!(text.parse::<PowerMode>(), Err(NotAMode(text.into())));
    }
}

#[test]
fn every_form_of_a_configuration_is_read() {
    let text = "# a comment\n\n<PARAM TYPE=CLOCK NAME=EMC >\nMAX_FREQ /a/path with a space\nMAX_FREQ_KNEXT /b\n\
                < POWER_MODEL ID=4 NAME=A >\n  CPU_ONLINE CORE_0 1   # why\nGPU MAX_FREQ -1\n\n< PM_CONFIG DEFAULT=4 >\n\
                < FAN_CONFIG DEFAULT=quiet >\nanything at all here\n";
    let modes = parse_conf(text).unwrap();
    assert_eq!(modes.default_mode().unwrap().to_string(), "A (4)");
    assert_eq!(parse_conf(&text.replace("DEFAULT=4", "DEFAULT=5")).unwrap().default_mode(), None);
}

#[test]
fn what_is_no_configuration_says_where() {
    for (text, words) in [
        ("", "defines no power mode"),
        ("< PARAM TYPE=FILE NAME=X >\nA /b\n", "defines no power mode"),
        ("\n< POWER_MODEL NAME=A >", "line 2: a power mode without an id"),
        ("< POWER_MODEL ID=x NAME=A >", "line 1: a power mode without an id"),
        ("< POWER_MODEL ID=1 >", "without a name"),
        ("< POWER_MODEL ID=1 NAME=A", "a section without an end"),
        ("< POWER_MODEL ID=1 NAME=A >\n< POWER_MODEL ID=1 NAME=B >", "line 2: a power mode that was defined before"),
        ("< POWER_MODEL ID=1 NAME=A >\n< POWER_MODEL ID=2 NAME=A >", "defined before"),
        ("< POWER_MODEL ID=1 NAME=A >\nGPU MAX_FREQ", "line 2: a line of a power mode that is not PARAMETER"),
    ] {
        let error = parse_conf(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text:?}: {error}");
    }
}

#[test]
fn every_form_of_an_answer_is_read() {
    let emc = "NVPM ERROR: Error opening /sys/kernel/nvpmodel_emc_cap/emc_iso_cap: 13\n";
    for (output, expected) in [
        ("NV Power Mode: MAXN_SUPER\n2\n".to_owned(), Some("MAXN_SUPER (2)")),
        ("NVPM WARN: fan mode is not set!\nNV Power Mode: MODE_30W\n2\n".to_owned(), Some("MODE_30W (2)")),
        (format!("NV Power Mode: MAXN_SUPER\n0\n{emc}"), Some("MAXN_SUPER (0)")),
        (format!("{emc}NV Power Mode: MAXN_SUPER\n{emc}0\n"), Some("MAXN_SUPER (0)")),
        ("NV Power Mode: MAXN_SUPER\n".to_owned(), None),
        (format!("{emc}2\n"), None),
        ("bash: nvpmodel: command not found\n".to_owned(), None),
        (String::new(), None),
    ] {
        assert_eq!(PowerMode::from_query(&output).map(|mode| mode.to_string()).as_deref(), expected, "{output:?}");
    }
    let conf = "# < POWER_MODEL ID=2 NAME=OLD >\n< POWER_MODEL ID=0 NAME=15W >\n<POWER_MODEL ID=2 NAME=MAXN_SUPER >\n";
    let modes: [(&str, Option<&str>); 6] = [
        ("pmode:0002 fmode:quiet\n", Some("MAXN_SUPER (2)")),
        ("pmode:0002", Some("MAXN_SUPER (2)")),
        ("pmode:0000 fmode:fan_mode_quiet", Some("15W (0)")),
        ("pmode:0001", None),
        ("fmode:cool", None),
        ("pmode:x", None),
    ];
    for (status, expected) in modes {
        let mode = PowerMode::from_status(status, conf).map(|mode| mode.to_string());
        assert_eq!(mode.as_deref(), expected, "{status}");
    }
}

#[test]
fn what_came_of_a_switch_is_read_from_its_words_first() {
    let asks = "NVPM WARN: Golden image context is already created\n\
                NVPM WARN: Reboot required for changing to this power mode: 3\n\
                NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm: \n\
                NVPM ERROR: bad input!\nNVPM ERROR: optMask is 1, no request for power mode\n";
    assert_eq!(SwitchAnswer::of("", true), SwitchAnswer::Accepted);
    assert_eq!(SwitchAnswer::of(asks, false), SwitchAnswer::NeedsReboot);
    assert_eq!(SwitchAnswer::of(asks, true), SwitchAnswer::NeedsReboot, "its exit status is not documented");
    let refused = SwitchAnswer::of("NVPM ERROR: request for bad power mode 9\n", false);
    assert_eq!(refused, SwitchAnswer::Refused("NVPM ERROR: request for bad power mode 9".into()));
    assert_eq!(SwitchAnswer::of("\n", false), SwitchAnswer::Refused("it said nothing".into()));
}
