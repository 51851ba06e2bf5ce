//! `fleet push`: the binary for each board's architecture, and files; whole or not at all, verified by digest.

use std::env;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{BoardDone, BoardFailure, Desk, PATIENCE};
use crate::cli::errors::Outcome;
use crate::cli::exit::Exit;
use crate::model::ids::ContentDigest;
use crate::model::inventory::BoardEntry;
use crate::perform::ssh::Ssh;

/// How long a file may take to a board.
const PUT_PATIENCE: Duration = Duration::from_secs(600);

/// How far the clocks of desk and board may be apart before it is said.
const CLOCKS_APART: Duration = Duration::from_secs(24 * 3600);

/// What a board says of itself before there is a jetfault on it: architecture, clock, digest of the program. The
/// directory is `$1`.
const PROBE: &str = r#"uname -m; date +%s; sha256sum < "$1/bin/jetfault" 2>/dev/null || echo none"#;

/// Puts standard input into the file `$2` of the directory `$1`, if it has the digest `$3`, with the mode `$4`.
const PUT: &str = r#"set -e; umask 022; mkdir -p "$1"; f="$1/$2"; t="$f.unfinished"; trap 'rm -f "$t"' EXIT; cat > "$t"
set -- "$1" "$2" "$3" "$4" "$(sha256sum < "$t")"
case "$5" in "$3"*) ;; *) echo "error: it did not arrive as it was sent" >&2; exit 9;; esac
chmod "$4" "$t"; sync "$t" 2>/dev/null || sync; mv -f "$t" "$f""#;

/// Gives the program `$2` of the directory `$1` its usual name. The binary itself is named after its digest: a run that
/// is under way goes on with the one that it began with.
const LINK: &str = r#"set -e; ln -sfn "$2" "$1/jetfault.new"; mv -fT "$1/jetfault.new" "$1/jetfault" 2>/dev/null || { rm -f "$1/jetfault"; mv -f "$1/jetfault.new" "$1/jetfault"; }"#;

/// `fleet push [FILES]`.
pub(super) fn push(desk: &Desk, files: &[PathBuf]) -> Outcome {
    Ok(desk.each(|board| {
        let ssh = desk.ssh(board);
        let probed = Probed::of(&ssh, board)?;
        let mut words = vec![push_binary(desk, board, &ssh, &probed)?];
        for file in files {
            words.push(push_matrix(board, &ssh, file)?);
        }
        words.extend(probed.clock_words());
        Ok(BoardDone { exit: Exit::Done, words: words.join("; ") })
    }))
}

/// What a board says of itself.
struct Probed {
    architecture: String,
    /// Its clock, in seconds since 1970.
    clock_s: Option<u64>,
    /// The digest of the program that is there.
    digest: String,
}

impl Probed {
    fn of(ssh: &Ssh, board: &BoardEntry) -> Result<Self, BoardFailure> {
        let failure = |error| BoardFailure::of(board, &error);
        let said = ssh.ask(&["sh", "-c", PROBE, "sh", &board.dir], io::empty(), PATIENCE).map_err(failure)?;
        let said = said.ended_with(&[0]).map_err(failure)?;
        let text = String::from_utf8_lossy(&said.out).into_owned();
        // A login shell may greet before it obeys.
        let lines: Vec<&str> = text.lines().collect();
        let [.., architecture, clock, digest] = &lines[..] else {
            let words = format!("it does not say what it is: {text:?}");
            return Err(BoardFailure::words(Exit::Unfit, words, "is there a POSIX shell for this user?"));
        };
        Ok(Self {
            architecture: (*architecture).to_owned(),
            clock_s: clock.parse().ok(),
            digest: digest.chars().take(64).collect(),
        })
    }

    fn clock_words(&self) -> Option<String> {
        let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let there = Duration::from_secs(self.clock_s?);
        let apart = here.abs_diff(there);
        let days = apart.as_secs() / (24 * 3600);
        let which = if there < here { "behind" } else { "ahead of" };
        (apart > CLOCKS_APART).then(|| {
            format!("its clock is {days} days {which} this one: dates are wrong there, and nothing else rests on them")
        })
    }
}

fn push_binary(desk: &Desk, board: &BoardEntry, ssh: &Ssh, probed: &Probed) -> Result<String, BoardFailure> {
    let architecture = &probed.architecture;
    let binary = match desk.inventory.fleet.binary.get(architecture) {
        Some(path) => desk.base.join(path),
        None if architecture == env::consts::ARCH => {
            env::current_exe().map_err(|error| local("find this program", error))?
        }
        None => {
            let words = format!("it is {architecture}, and this desk has no binary for that");
            return Err(BoardFailure::words(Exit::Usage, words, format!("[fleet] binary.{architecture} = \"PATH\"")));
        }
    };
    let mut file = open(&binary)?;
    let is_for = elf_machine(&mut file).map_err(|error| local(&format!("read {}", binary.display()), error))?;
    if is_for.is_some_and(|is_for| is_for != architecture) || is_for.is_none() {
        let what = is_for.map_or_else(|| "is no program for Linux".to_owned(), |is_for| format!("is for {is_for}"));
        let words = format!("it is {architecture}, and {} {what}", binary.display());
        return Err(BoardFailure::words(Exit::Usage, words, format!("mend [fleet] binary.{architecture}")));
    }
    let digest = digest_of(&mut file, &binary)?;
    if probed.digest == digest.as_str() {
        return Ok("has this jetfault".to_owned());
    }
    let name = format!("jetfault-{}", &digest.as_str()[..12]);
    let dir = format!("{}/bin", board.dir);
    put(board, ssh, file, (&dir, &name), &digest, "755")?;
    let failure = |error| BoardFailure::of(board, &error);
    let said = ssh.ask(&["sh", "-c", LINK, "sh", &dir, &name], io::empty(), PATIENCE).map_err(failure)?;
    said.ended_with(&[0]).map_err(failure)?;
    Ok(format!("got jetfault for {architecture}"))
}

/// Puts the matrix `file` where `run` looks for it; says so.
pub(super) fn push_matrix(board: &BoardEntry, ssh: &Ssh, file: &Path) -> Result<String, BoardFailure> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    if name.is_empty() || name.chars().any(char::is_control) {
        let words = format!("{} is not the name of a file", file.display());
        return Err(BoardFailure::words(Exit::Usage, words, "files are pushed, and not directories"));
    }
    let mut opened = open(file)?;
    let digest = digest_of(&mut opened, file)?;
    put(board, ssh, opened, (&matrices(board), &name), &digest, "644")?;
    Ok(format!("got {name}"))
}

/// The directory of matrices on `board`.
pub(super) fn matrices(board: &BoardEntry) -> String {
    format!("{}/matrices", board.dir)
}

fn put(
    board: &BoardEntry,
    ssh: &Ssh,
    file: File,
    (dir, name): (&str, &str),
    digest: &ContentDigest,
    mode: &str,
) -> Result<(), BoardFailure> {
    let failure = |error| BoardFailure::of(board, &error);
    let argv = ["sh", "-c", PUT, "sh", dir, name, digest.as_str(), mode];
    ssh.ask(&argv, file, PUT_PATIENCE).and_then(|said| said.ended_with(&[0])).map(drop).map_err(failure)
}

fn local(what: &str, error: io::Error) -> BoardFailure {
    BoardFailure { exit: Exit::Usage, words: format!("cannot {what}: {error}"), hint: None }
}

fn open(path: &Path) -> Result<File, BoardFailure> {
    File::open(path).map_err(|error| local(&format!("open {} on this desk", path.display()), error))
}

fn digest_of(file: &mut File, path: &Path) -> Result<ContentDigest, BoardFailure> {
    let digest = file.rewind().and_then(|()| ContentDigest::of_reader(file)).and_then(|digest| {
        file.rewind()?;
        Ok(digest)
    });
    digest.map_err(|error| local(&format!("read {}", path.display()), error))
}

/// The architecture that an ELF file is for, as `uname -m` names it; none if it is another or no such file
/// (elf.h: `e_machine`, `EM_X86_64`, `EM_AARCH64`).
fn elf_machine(file: &mut File) -> io::Result<Option<&'static str>> {
    let mut header = [0; 20];
    match file.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    Ok(match (&header[..6], u16::from_le_bytes([header[18], header[19]])) {
        (b"\x7fELF\x02\x01", 62) => Some("x86_64"),
        (b"\x7fELF\x02\x01", 183) => Some("aarch64"),
        _ => None,
    })
}
