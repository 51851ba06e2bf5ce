//! The corpus of the fuzz targets, replayed: each file as it is, cut short, and with single bytes changed.

use std::fs;
use std::path::Path;

#[path = "../fuzz/entries.rs"]
mod entries;

/// Pieces of which each file is cut, and bytes of it that are changed.
const PLACES: usize = 16;

/// A target's name and what it does with bytes.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 7] = [
    ("checkpoint", entries::checkpoint),
    ("event", entries::event),
    ("evidence", entries::evidence),
    ("journal", entries::journal),
    ("kernel_log", entries::kernel_log),
    ("matrix", entries::matrix),
    ("protocol", entries::protocol),
];

#[test]
fn the_corpus_of_every_target_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let (mut files, mut inputs) = (0, 0);
    for (name, entry) in TARGETS {
        let dir = fs::read_dir(corpus.join(name)).unwrap_or_else(|error| panic!("fuzz/corpus/{name}: {error}"));
        let mut paths: Vec<_> = dir.map(|file| file.unwrap().path()).collect();
        paths.sort();
        assert!(paths.len() > 2, "fuzz/corpus/{name} has hardly a file");
        for path in paths {
            let bytes = fs::read(&path).unwrap();
            files += 1;
            for input in variants(&bytes) {
                inputs += 1;
                let held = std::panic::catch_unwind(|| entry(&input));
                assert!(held.is_ok(), "{}: {:?}", path.display(), String::from_utf8_lossy(&input));
            }
        }
    }
    println!("fuzz corpus: {inputs} inputs of {files} files hold");
}

fn variants(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut variants = vec![bytes.to_vec()];
    for place in (0..PLACES).map(|nth| nth * bytes.len() / PLACES).filter(|place| *place < bytes.len()) {
        variants.push(bytes[..place].to_vec());
        let mut changed = bytes.to_vec();
        changed[place] ^= 1 << (place % 8);
        variants.push(changed);
    }
    variants
}
