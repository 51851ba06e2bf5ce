//! The stand-ins: small C programs that fail as real ones do, built once by the compiler that links every Rust program.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

static BUILT: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let build = |output: &str, source: &str, flags: &[&str]| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standins").join(source);
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-w", "-Wl,--build-id=sha1", "-o"]).arg(dir.path().join(output)).arg(source).args(flags);
        let said = cc.output().expect("a C compiler, which Rust links with");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    };
    build("libcompiler.so", "compiler.c", &["-shared", "-fPIC", "-fvisibility=hidden", "-s", "-lpthread"]);
    build("builder", "builder.c", &["-ldl", "-lpthread"]);
    build("endings", "endings.c", &[]);
    build("forbid", "forbid.c", &[]);
    dir
});

/// The path of a stand-in.
pub fn standin(name: &str) -> String {
    BUILT.path().join(name).to_str().unwrap().to_owned()
}
