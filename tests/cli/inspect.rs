//! `inspect`: headers as they are on a disk, whole, cut and hostile.

use std::fs::{self, File};
use std::io::Write;

use super::bench::Bench;

/// A file of one NVFP4 layer whose header is `json` and whose data has `bytes`.
fn write(bench: &Bench, name: &str, json: &str, bytes: usize) -> String {
    let path = bench.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = File::create(&path).unwrap();
    file.write_all(&(json.len() as u64).to_le_bytes()).unwrap();
    file.write_all(json.as_bytes()).unwrap();
    file.write_all(&vec![0; bytes]).unwrap();
    path.to_str().unwrap().to_owned()
}

const LAYER: &str = r#"{"__metadata__":{"format":"pt"},
 "m.weight":{"dtype":"U8","shape":[4,32],"data_offsets":[0,128]},
 "m.weight_scale":{"dtype":"F8_E4M3","shape":[4,4],"data_offsets":[128,144]},
 "m.weight_scale_2":{"dtype":"F32","shape":[],"data_offsets":[144,148]}}"#;

#[test]
fn a_whole_checkpoint_is_counted_and_a_cut_one_says_where() {
    let bench = Bench::new();
    let whole = write(&bench, "whole/model.safetensors", LAYER, 148);
    let said = bench.run(&["inspect", &whole]);
    said.ends(0);
    for line in ["dtypes     F32 1, F8_E4M3 1, U8 1", "quantised  NVFP4 1", "config     none beside the file"] {
        assert!(said.says(line), "{line}: {}", said.out);
    }
    let cut = write(&bench, "cut/model.safetensors", LAYER, 100);
    let said = bench.run(&["inspect", &cut]);
    said.ends(1);
    assert!(said.says("m.weight: ends at byte 128 of the data, which has 100: the file was cut"), "{}", said.out);
}

#[test]
fn the_configuration_beside_the_file_is_compared_with_it() {
    let bench = Bench::new();
    let file = write(&bench, "model.safetensors", LAYER, 148);
    let config = r#"{"producer":{"name":"modelopt","version":"0.37.0"},
        "quantization":{"quant_algo":"FP8","kv_cache_quant_algo":null,"exclude_modules":["lm_head"]}}"#;
    fs::write(bench.path("hf_quant_config.json"), config).unwrap();
    let said = bench.run(&["inspect", &file, "--format", "json"]);
    said.ends(1);
    let inspection: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(inspection["schema"], "jetfault-inspect-1");
    assert_eq!(inspection["findings"][0], "m: NVFP4, the configuration says FP8");
    fs::write(bench.path("hf_quant_config.json"), "[]").unwrap();
    let said = bench.run(&["inspect", &file]);
    said.ends(2);
    assert!(said.err.contains("hf_quant_config.json") && said.err.contains("hint: "), "{}", said.err);
}

#[test]
fn a_hostile_header_is_refused_before_anything_is_allocated() {
    let bench = Bench::new();
    let file = |name: &str, bytes: &[u8]| {
        let path = bench.path(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // A sparse file, so that only the claim is checked: 100 GB of header in a file of 101 GB.
    let sparse = file("sparse", &100_000_000_000u64.to_le_bytes());
    File::options().write(true).open(&sparse).unwrap().set_len(101_000_000_000).unwrap();
    for (path, words) in [
        (sparse, "the header claims 100000000000 bytes, more than the 100000000"),
        (file("short", b"abc"), "the file has 3 bytes"),
        (file("cut", &500u64.to_le_bytes()), "the header claims 500 bytes and the file has 0 after the length"),
        (file("text", b"\x02\0\0\0\0\0\0\0[]"), "an object of tensors"),
        (bench.path(".").to_str().unwrap().to_owned(), "is not a file"),
        (bench.path("nowhere").to_str().unwrap().to_owned(), "No such file"),
    ] {
        let said = bench.run(&["inspect", &path]);
        said.ends(2);
        assert!(said.err.contains(words) && said.err.contains("hint: "), "{words}: {}", said.err);
    }
}
