//! Style that matters is a test: the layers, the owners of dependencies, unsafe, file length, names.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a source file, its tests included.
const FILE_LINES_MAX: usize = 620;

/// The layers, and which of them each may use.
const LAYERS: [(&str, &[&str]); 5] = [
    ("model", &[]),
    ("decide", &["model"]),
    ("perform", &["model", "decide"]),
    ("workload", &["model"]),
    ("cli", &["model", "decide", "perform", "workload"]),
];

/// A package and the places that may name it. `docs/architecture.md` says what for.
const OWNERS: [(&str, &[&str]); 25] = [
    ("clap", &["src/cli/"]),
    ("clap_complete", &["src/cli/"]),
    ("clap_mangen", &["src/cli/man.rs"]),
    ("anyhow", &["src/cli/"]),
    ("askama", &["src/cli/render/html"]),
    ("csv", &["src/cli/csv_rows.rs"]),
    ("zip", &["src/perform/bundle"]),
    ("indicatif", &["src/cli/progress.rs"]),
    ("signal_hook", &["src/cli/", "src/workload/fake.rs", "src/workload/load.rs"]),
    ("tracing_subscriber", &["src/cli/"]),
    ("toml", &["src/model/matrix/", "src/model/board.rs", "src/model/inventory.rs"]),
    ("sha2", &["src/model/ids.rs", "src/perform/launching.rs", "src/workload/gpu/images.rs"]),
    ("crc32fast", &["src/model/journal.rs"]),
    ("chrono", &["src/model/units.rs", "src/perform/host/", "src/testing/"]),
    ("regex", &["src/model/matrix/", "src/decide/kernel_log", "src/perform/"]),
    ("rand_chacha", &["src/decide/order.rs"]),
    ("half", &["src/workload/", "kernels/"]),
    ("rayon", &["src/workload/", "src/testing/"]),
    ("cudarc", &["src/workload/gpu/driver.rs"]),
    ("libloading", &["src/workload/gpu/"]),
    ("flate2", &["src/workload/gpu/images.rs"]),
    ("tokio", &["src/perform/supervise"]),
    ("quick_junit", &["src/cli/junit.rs"]),
    ("libc", &["src/perform/os.rs", "src/workload/os.rs"]),
    ("sysinfo", &["src/perform/host/"]),
];

/// Where `unsafe` may stand.
const UNSAFE: [&str; 3] = ["src/perform/os.rs", "src/workload/os.rs", "src/workload/gpu"];

fn sources() -> Vec<(String, String)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(&root.join("src"), &mut found);
    walk(&root.join("kernels"), &mut found);
    found.sort();
    assert!(found.len() > 50, "the sources were found");
    let name = |path: &Path| path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
    found.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// The code of a line: what stands before a comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Whether `code` names `package` as a path.
fn names(code: &str, package: &str) -> bool {
    code.match_indices(package).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let starts = before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':' && c != '.');
        starts && code[at + package.len()..].starts_with("::")
    })
}

#[test]
fn no_layer_uses_one_above_it() {
    let mut wrong = Vec::new();
    for (file, text) in sources() {
        let Some((layer, may)) = LAYERS.iter().find(|(layer, _)| file.starts_with(&format!("src/{layer}/"))) else {
            continue;
        };
        // A test may look at its layer from above; the code may not.
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            for (other, _) in LAYERS {
                let uses = code(line).contains(&format!("crate::{other}::"));
                if uses && other != *layer && !may.contains(&other) {
                    wrong.push(format!("{file}:{}: {layer} uses {other}", number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_package_is_named_by_its_owner_alone() {
    let mut wrong = Vec::new();
    for (file, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            for (package, owners) in OWNERS {
                if names(code(line), package) && !owners.iter().any(|owner| file.starts_with(owner)) {
                    wrong.push(format!("{file}:{}: {package} belongs to {}", number + 1, owners.join(", ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_owners_are_in_the_architecture() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md")).unwrap();
    for (package, _) in OWNERS {
        let known = text.contains(package) || text.contains(&package.replace('_', "-"));
        assert!(known, "docs/architecture.md does not say who owns {package}");
    }
}

#[test]
fn unsafe_stands_only_where_the_operating_system_or_the_gpu_needs_it() {
    for (file, text) in sources() {
        let has = text.lines().any(|line| code(line).contains("unsafe {") || code(line).contains("unsafe fn"));
        assert!(!has || UNSAFE.iter().any(|place| file.starts_with(place)), "{file} has unsafe code");
    }
}

#[test]
fn files_are_short_enough_to_read() {
    let long: Vec<String> = sources()
        .into_iter()
        .map(|(file, text)| (file, text.lines().count()))
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .map(|(file, lines)| format!("{file}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "the design asks for a change: {}", long.join(", "));
}

#[test]
fn every_module_says_what_it_is() {
    for (file, text) in sources() {
        assert!(text.starts_with("//!"), "{file} does not begin with what it owns");
    }
}

#[test]
fn every_kernel_has_its_twin() {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    for entry in fs::read_dir(kernels).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "cu") {
            assert!(path.with_extension("rs").is_file(), "{} has no twin", path.display());
        }
    }
}

#[test]
fn no_placeholder_is_left() {
    for (file, text) in sources() {
        for word in ["todo!(", "unimplemented!(", "FIXME", "XXX", "dbg!("] {
            assert!(!text.contains(word), "{file} has {word}");
        }
    }
}
