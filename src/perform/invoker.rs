//! Who invoked the run: user, groups, directory, mask, environment and limits, as every child of every boot has them.
//!
//! Collected once, journaled in `Opened`, applied by [`crate::perform::exec`]. It changes nothing itself.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::LazyLock;

use rustix::process::{Resource, Rlimit, getegid, geteuid, getgroups, getrlimit, umask};

use crate::model::journal::Invoker;

/// Environment variables that a child gets, by exact name.
const ENV_NAMES: &[&str] = &[
    "CUDACXX",
    "DISPLAY",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "PYTHONPATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "__LUNOWUD",
];

/// Environment variables that a child gets, by the beginning of the name: what steers GPU libraries and frameworks.
const ENV_PREFIXES: &[&str] = &[
    "BNB_",
    "BITSANDBYTES_",
    "CONDA_",
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "GGML_",
    "HF_",
    "LC_",
    "LLAMA_",
    "NVIDIA_",
    "OMP_",
    "PYTHON",
    "PYTORCH_",
    "TORCH",
    "TRANSFORMERS_",
    "TRITON_",
    "TRT_",
    "VLLM_",
];

/// The limits that are kept, by the name they have in the journal.
const LIMITS: &[(&str, Resource)] = &[
    ("RLIMIT_AS", Resource::As),
    ("RLIMIT_CORE", Resource::Core),
    ("RLIMIT_CPU", Resource::Cpu),
    ("RLIMIT_DATA", Resource::Data),
    ("RLIMIT_FSIZE", Resource::Fsize),
    ("RLIMIT_MEMLOCK", Resource::Memlock),
    ("RLIMIT_MSGQUEUE", Resource::Msgqueue),
    ("RLIMIT_NICE", Resource::Nice),
    ("RLIMIT_NOFILE", Resource::Nofile),
    ("RLIMIT_NPROC", Resource::Nproc),
    ("RLIMIT_RTPRIO", Resource::Rtprio),
    ("RLIMIT_SIGPENDING", Resource::Sigpending),
    ("RLIMIT_STACK", Resource::Stack),
];

/// Who a sudo session was started by, as `SUDO_UID` and `SUDO_GID` tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SudoCaller {
    uid: u32,
    gid: u32,
}

/// A user's entry in the account database.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    name: String,
    home: String,
    shell: String,
}

/// The invoker of this process. Through sudo it is the person who typed the command, not root.
///
/// # Errors
/// If the working directory is gone.
pub fn collect() -> std::io::Result<Invoker> {
    let cwd = std::env::current_dir()?.to_string_lossy().into_owned();
    let mut env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_allowed(name))
        .collect();
    let caller = sudo_caller(geteuid().as_raw(), |name| std::env::var(name).ok());
    let (uid, gid, groups) = match caller {
        None => (geteuid().as_raw(), getegid().as_raw(), our_groups()),
        Some(SudoCaller { uid, gid }) => {
            if let Some(account) = account(uid) {
                env.insert("HOME".into(), account.home);
                env.insert("SHELL".into(), account.shell);
                env.insert("LOGNAME".into(), account.name.clone());
                env.insert("USER".into(), account.name);
            }
            (uid, gid, groups_of(uid).unwrap_or_else(|| vec![gid]))
        }
    };
    Ok(Invoker {
        uid,
        gid,
        groups: sorted(groups),
        cwd,
        umask: current_umask(),
        env: env.into_iter().collect(),
        limits: limits(),
    })
}

/// Whether this process already has the user, groups, mask and limits of `invoker`, so that a child inherits them.
pub(super) fn is_current(invoker: &Invoker) -> bool {
    // Asked at every trial of what nothing here changes.
    static CURRENT: LazyLock<(u32, Limits)> = LazyLock::new(|| (current_umask(), limits()));
    has_user(invoker) && CURRENT.0 == invoker.umask && CURRENT.1 == invoker.limits
}

/// Whether this process already has the user and groups of `invoker`.
pub(super) fn has_user(invoker: &Invoker) -> bool {
    geteuid().as_raw() == invoker.uid && getegid().as_raw() == invoker.gid && sorted(our_groups()) == invoker.groups
}

fn our_groups() -> Vec<u32> {
    getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect()
}

/// The limit called `name` in the journal, if this build knows it.
pub(super) fn resource(name: &str) -> Option<Resource> {
    LIMITS.iter().find(|(known, _)| *known == name).map(|(_, resource)| *resource)
}

/// The journal and its bundles are handed around, so a name that promises a secret never enters them.
fn is_allowed(name: &str) -> bool {
    let is_secret = ["TOKEN", "SECRET", "PASSWORD", "KEY"].iter().any(|word| name.contains(word));
    if is_secret {
        return false;
    }
    ENV_NAMES.contains(&name) || ENV_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn sorted(mut groups: Vec<u32>) -> Vec<u32> {
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// Only root is told by sudo who called; for anybody else the variables are leftovers of an outer session.
fn sudo_caller(euid: u32, variable: impl Fn(&str) -> Option<String>) -> Option<SudoCaller> {
    // To the kernel the largest id means "leave it": the child would keep the rights of root.
    let number = |name| variable(name)?.parse().ok().filter(|id| *id != u32::MAX);
    match (euid, number("SUDO_UID"), number("SUDO_GID")) {
        (0, Some(uid), Some(gid)) => Some(SudoCaller { uid, gid }),
        _ => None,
    }
}

/// The system call can only read the mask by setting it, which another thread would notice; `/proc` (Linux 4.7) tells.
fn current_umask() -> u32 {
    let told = std::fs::read_to_string("/proc/self/status").ok().and_then(|status| parse_umask(&status));
    told.unwrap_or_else(|| {
        let mask = umask(rustix::fs::Mode::from_raw_mode(0o022));
        umask(mask);
        mask.as_raw_mode()
    })
}

/// Whether whoever started this process made it ignore SIGHUP, as nohup(1) does.
pub fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal n is bit n - 1, and SIGHUP is signal 1.
    ignored.is_some_and(|mask| mask & 1 != 0)
}

fn parse_umask(status: &str) -> Option<u32> {
    let octal = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(octal.trim(), 8).ok()
}

/// Name, soft and hard limit; `None` is no limit.
type Limits = Vec<(String, Option<u64>, Option<u64>)>;

fn limits() -> Limits {
    let limit = |(name, resource): &(&str, Resource)| {
        let Rlimit { current, maximum } = getrlimit(*resource);
        ((*name).to_owned(), current, maximum)
    };
    LIMITS.iter().map(limit).collect()
}

/// Supplementary groups from the account database, which only a libc or a program of the system can read fully.
fn groups_of(uid: u32) -> Option<Vec<u32>> {
    let account = account(uid)?;
    let output = Command::new("id").args(["-G", "--", &account.name]).output().ok()?;
    let groups: Vec<u32> = String::from_utf8(output.stdout).ok()?.split_whitespace().flat_map(str::parse).collect();
    (!groups.is_empty()).then_some(groups)
}

fn account(uid: u32) -> Option<Account> {
    let output = Command::new("getent").args(["passwd", &uid.to_string()]).output().ok()?;
    parse_account(&String::from_utf8(output.stdout).ok()?)
}

/// `name:password:uid:gid:comment:home:shell`, passwd(5).
fn parse_account(line: &str) -> Option<Account> {
    let fields: Vec<&str> = line.trim_end().split(':').collect();
    match fields[..] {
        [name, _, _, _, _, home, shell] => Some(Account { name: name.into(), home: home.into(), shell: shell.into() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sudo_is_believed_only_as_root() {
        let variable = |name: &str| match name {
            "SUDO_UID" => Some("1000".to_owned()),
            "SUDO_GID" => Some("1001".to_owned()),
            _ => None,
        };
        assert_eq!(sudo_caller(0, variable), Some(SudoCaller { uid: 1000, gid: 1001 }));
        assert_eq!(sudo_caller(1000, variable), None);
        assert_eq!(sudo_caller(0, |_| None), None);
        assert_eq!(sudo_caller(0, |_| Some("nobody".into())), None);
        assert_eq!(sudo_caller(0, |_| Some(u32::MAX.to_string())), None, "no user has that id");
    }

    #[test]
    fn secrets_do_not_pass_the_list() {
        for name in ["AWS_REGION", "HF_TOKEN", "NVIDIA_API_KEY", "SSH_AUTH_SOCK", "LD_PRELOAD", "JETFAULT_TRIAL"] {
            assert!(!is_allowed(name), "{name}");
        }
        for name in ["PATH", "CUDA_MODULE_LOADING", "PYTORCH_CUDA_ALLOC_CONF", "LC_ALL"] {
            assert!(is_allowed(name), "{name}");
        }
    }

    #[test]
    fn an_account_line_gives_home_and_shell() {
        let account = parse_account("ann:x:1000:1000:Ann,,,:/home/ann:/bin/bash\n").unwrap();
        assert_eq!((account.name.as_str(), account.home.as_str()), ("ann", "/home/ann"));
        assert_eq!(parse_account(""), None);
    }

    #[test]
    fn the_collected_invoker_is_the_current_one_unless_sudo_says_otherwise() {
        let invoker = collect().unwrap();
        if std::env::var_os("SUDO_UID").is_none() {
            assert!(is_current(&invoker));
        }
        let other = Invoker { umask: invoker.umask ^ 0o070, ..invoker };
        assert!(!is_current(&other));
    }
}
