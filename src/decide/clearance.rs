//! Whether the next trial of a boot may start, or has to wait for a person or for the board: pure.
//!
//! A person always gets in: the delay before the first trial begins when a login over the network is possible, and
//! whoever is logged in holds the next trial.

/// The delay begins after this at the latest, in ms: a board without a network does not wait for one for ever.
pub const SSHD_PATIENCE_MS: u64 = 120_000;

/// A terminal that nobody touched for so long, in ms, no longer holds: a forgotten session must not stop a campaign.
pub const IDLE_MS_MAX: u64 = 3_600_000;

/// How long the boot may take to be verified, in ms. Until then a fault would use up a try of its slot.
pub const VERIFY_PATIENCE_MS: u64 = 180_000;

/// A person at a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// Who, for people on the same machine.
    pub user: String,
    /// At which terminal.
    pub terminal: String,
    /// For how long nothing was typed or printed there, in ms.
    pub idle_ms: u64,
}

/// Whether a login over the network is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sshd {
    /// There is no server.
    None,
    /// It does not listen yet.
    Starting,
    /// It listens, for so many ms as we know.
    Listening(u64),
}

/// What is seen of a boot before a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scene {
    /// For how long the harness is up in this boot, in ms.
    pub up_ms: u64,
    /// Whether a login over the network is possible.
    pub sshd: Sshd,
    /// Who is logged in with a terminal.
    pub logins: Vec<Login>,
    /// Whether a person who is logged in said that it may go on.
    pub released: bool,
    /// What says that this boot was not verified yet, if anything does.
    pub unverified: Option<String>,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clearance {
    /// Go on.
    Go,
    /// Wait, and ask again: why.
    Wait(String),
    /// Stop the run: why.
    Stop(String),
}

/// Whether the next trial may start, with a delay of `delay_ms` before the first one of a boot.
pub fn clearance(scene: &Scene, delay_ms: u64) -> Clearance {
    let delayed_ms = match scene.sshd {
        Sshd::None => scene.up_ms,
        Sshd::Listening(ms) => ms.max(scene.up_ms.saturating_sub(SSHD_PATIENCE_MS)),
        Sshd::Starting if delay_ms == 0 => 0,
        Sshd::Starting => match scene.up_ms.checked_sub(SSHD_PATIENCE_MS) {
            Some(ms) => ms,
            None => return Clearance::Wait("nobody could log in yet: sshd does not listen".into()),
        },
    };
    if delayed_ms < delay_ms {
        return Clearance::Wait(format!("the delay of {} s before the first trial of a boot", delay_ms.div_ceil(1000)));
    }
    if let Some(why) = &scene.unverified {
        if scene.up_ms < VERIFY_PATIENCE_MS {
            return Clearance::Wait(format!("this boot is not verified yet: {why}"));
        }
        return Clearance::Stop(format!("this boot was not verified: {why}; `sudo nvbootctrl verify` does it"));
    }
    match scene.logins.iter().find(|login| !scene.released && login.idle_ms < IDLE_MS_MAX) {
        Some(Login { user, terminal, .. }) => Clearance::Wait(format!(
            "{user} is logged in at {terminal}: `jetfault resume` goes on, `jetfault stop` stops"
        )),
        None => Clearance::Go,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Scene = Scene { up_ms: 40_000, sshd: Sshd::None, logins: vec![], released: false, unverified: None };

    fn waits(scene: &Scene) -> Option<String> {
        match clearance(scene, 30_000) {
            Clearance::Go => None,
            Clearance::Wait(why) => Some(why),
            Clearance::Stop(why) => panic!("{why}"),
        }
    }

    #[test]
    fn the_delay_begins_when_a_person_can_log_in() {
        assert_eq!(waits(&QUIET), None);
        assert!(waits(&Scene { up_ms: 29_999, ..QUIET }).unwrap().contains("30 s"));
        assert!(waits(&Scene { sshd: Sshd::Starting, ..QUIET }).unwrap().contains("sshd"));
        assert!(waits(&Scene { sshd: Sshd::Listening(10_000), ..QUIET }).unwrap().contains("delay"));
        assert_eq!(waits(&Scene { sshd: Sshd::Listening(30_000), ..QUIET }), None);
    }

    #[test]
    fn a_board_without_a_network_does_not_wait_for_ever() {
        let late = Scene { up_ms: SSHD_PATIENCE_MS + 30_000, ..QUIET };
        for sshd in [Sshd::Starting, Sshd::Listening(0)] {
            assert_eq!(waits(&Scene { sshd, ..late.clone() }), None, "{sshd:?}");
        }
        assert_eq!(clearance(&Scene { sshd: Sshd::Starting, up_ms: 0, ..QUIET }, 0), Clearance::Go);
    }

    #[test]
    fn a_login_holds_until_it_ends_or_says_so_or_is_forgotten() {
        let login = |idle_ms| Login { user: "operator".into(), terminal: "pts/0".into(), idle_ms };
        let held = Scene { logins: vec![login(IDLE_MS_MAX), login(5)], ..QUIET };
        assert!(waits(&held).unwrap().contains("operator is logged in at pts/0: `jetfault resume`"));
        assert_eq!(waits(&Scene { released: true, ..held }), None);
        assert_eq!(waits(&Scene { logins: vec![login(IDLE_MS_MAX)], ..QUIET }), None);
    }

    #[test]
    fn an_unverified_boot_is_waited_for_and_then_stops_the_run() {
        let unverified = Scene { unverified: Some("slot A has 1 of 3 tries left".into()), ..QUIET };
        assert!(waits(&unverified).unwrap().contains("slot A"));
        let late = Scene { up_ms: VERIFY_PATIENCE_MS, ..unverified };
        assert!(matches!(clearance(&late, 0), Clearance::Stop(why) if why.contains("nvbootctrl verify")));
    }
}
