//! Which file the first word of a command is, and which interpreter its first line asks for.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The longest first line of a script that the kernel reads (`BINPRM_BUF_SIZE`).
const SHEBANG_BYTES_MAX: u64 = 256;

/// The file that `program` is for a process that starts in `cwd` with `path` as its `PATH`, as execvp(3) looks for it;
/// none if nothing that may be executed is there.
pub fn find(program: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    let is_program =
        |file: &PathBuf| file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return Some(cwd.join(program)).filter(is_program);
    }
    std::env::split_paths(OsStr::new(path)).map(|dir| cwd.join(dir).join(program)).find(is_program)
}

/// Whether the program takes the user or the group of its file. Under a tracer without `CAP_SYS_PTRACE` it does not
/// (ptrace(2), "Ptrace access mode checking" and execve(2)).
pub(super) fn takes_user(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o6000 != 0)
}

/// The first line of a script, without its `#!`; none of a file that is no script, or may not be read.
pub(super) fn shebang(file: &Path) -> Option<String> {
    let mut first = Vec::new();
    File::open(file).ok()?.take(SHEBANG_BYTES_MAX).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_program_is_what_exec_would_find() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, plain) = (dir.path().join("bin"), dir.path().join("plain"));
        for (dir, mode) in [(&plain, 0o644), (&bin, 0o755)] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("tool"), "#! /usr/bin/env python3 -u\nprint()\n").unwrap();
            fs::set_permissions(dir.join("tool"), fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = format!("/nowhere:{}:{}", plain.display(), bin.display());
        assert_eq!(find("tool", &path, Path::new("/")), Some(bin.join("tool")));
        assert_eq!(find("bin/tool", "", dir.path()), Some(bin.join("tool")));
        assert_eq!(find("tool", "bin", dir.path()), Some(bin.join("tool")));
        assert_eq!((find("plain/tool", "", dir.path()), find("tool", "/nowhere", dir.path())), (None, None));
        assert_eq!(shebang(&bin.join("tool")).as_deref(), Some("/usr/bin/env python3 -u"));
        assert_eq!(shebang(&std::env::current_exe().unwrap()), None);
    }
}
