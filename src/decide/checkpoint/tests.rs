//! Headers of checkpoints, whole and hostile, and what is said of them.

use super::*;
use crate::model::checkpoint::{LayerQuantization, Quantization};

/// A header in the making: tensors one after the other.
#[derive(Default)]
struct Made {
    tensors: BTreeMap<String, Tensor>,
    bytes: u64,
}

impl Made {
    fn add(&mut self, name: &str, dtype: &str, shape: &[u64]) {
        let mut tensor = Tensor { dtype: dtype.into(), shape: shape.into(), data_offsets: [0, 0] };
        let end = self.bytes + tensor.bytes().unwrap();
        tensor.data_offsets = [self.bytes, end];
        self.bytes = end;
        self.tensors.insert(name.to_owned(), tensor);
    }

    fn nvfp4(&mut self, module: &str, outputs: u64, inputs: u64) {
        self.add(&format!("{module}.weight"), "U8", &[outputs, inputs / 2]);
        self.add(&format!("{module}.weight_scale"), "F8_E4M3", &[outputs, inputs / 16]);
        self.add(&format!("{module}.weight_scale_2"), "F32", &[]);
        self.add(&format!("{module}.input_scale"), "F32", &[]);
    }

    fn fp8(&mut self, module: &str, outputs: u64, inputs: u64) {
        self.add(&format!("{module}.weight"), "F8_E4M3", &[outputs, inputs]);
        self.add(&format!("{module}.weight_scale"), "F32", &[]);
        self.add(&format!("{module}.input_scale"), "F32", &[]);
    }

    fn header(&self) -> Header {
        Header { tensors: self.tensors.clone(), data_bytes: self.bytes }
    }
}

fn findings(made: &Made) -> Vec<String> {
    inspect(&made.header(), None).findings
}

fn one_layer() -> Made {
    let mut made = Made::default();
    made.nvfp4("m", 8, 64);
    made
}

#[test]
fn a_layer_that_fits_has_no_findings() {
    let inspection = inspect(&one_layer().header(), None);
    assert_eq!(inspection.findings, Vec::<String>::new());
    let layer = &inspection.layers[0];
    assert_eq!(
        (layer.format, layer.stored.as_slice(), layer.scale.as_slice()),
        (CheckpointFormat::Nvfp4, &[8, 32][..], &[8, 4][..])
    );
}

#[test]
fn every_format_is_recognised_by_its_tensors() {
    let mut made = Made::default();
    made.nvfp4("a", 8, 64);
    made.fp8("b", 8, 64);
    made.add("c.weight_packed", "U8", &[8, 32]);
    made.add("c.weight_scale", "F8_E4M3", &[8, 4]);
    made.add("c.weight_global_scale", "F32", &[1]);
    made.add("d.weight", "U8", &[256, 1]);
    made.add("d.weight.absmax", "U8", &[8]);
    made.add("d.weight.nested_absmax", "F32", &[1]);
    made.add("d.weight.quant_state.bitsandbytes__nf4", "U8", &[90]);
    made.add("e.weight", "BF16", &[128, 1]);
    made.add("e.weight.absmax", "F32", &[8]);
    made.add("e.weight.quant_state.bitsandbytes__fp4", "U8", &[90]);
    made.add("f.gate_up_proj_blocks", "U8", &[4, 8, 2, 16]);
    made.add("f.gate_up_proj_scales", "U8", &[4, 8, 2]);
    made.add("g.weight", "BF16", &[8, 64]);
    let inspection = inspect(&made.header(), None);
    assert_eq!(inspection.findings, Vec::<String>::new());
    let formats: Vec<_> = inspection.layers.iter().map(|layer| (layer.name.as_str(), layer.format)).collect();
    use CheckpointFormat::{Fp4, Fp8, Mxfp4, Nf4, Nvfp4, Nvfp4Reciprocal};
    assert_eq!(
        formats,
        [("a", Nvfp4), ("b", Fp8), ("c", Nvfp4Reciprocal), ("d", Nf4), ("e", Fp4), ("f.gate_up_proj", Mxfp4)]
    );
}

/// The shapes of Cosmos-Reason2-2B, whose quantised checkpoint a public report counted: F32 602, F16 325, F8_E4M3 301,
/// U8 197. Its language model is NVFP4, its vision tower FP8, and what is not a matrix stays F16.
fn cosmos() -> (Made, QuantConfig) {
    const HIDDEN: u64 = 2048;
    const VISION: u64 = 1024;
    let mut made = Made::default();
    let mut said = BTreeMap::new();
    let mut say = |name: &str, algorithm: &str, group_size| {
        said.insert(name.to_owned(), LayerQuantization { quant_algo: algorithm.to_owned(), group_size });
    };
    made.add("model.language_model.embed_tokens.weight", "F16", &[151_936, HIDDEN]);
    made.add("model.language_model.norm.weight", "F16", &[HIDDEN]);
    for layer in 0..28 {
        let prefix = format!("model.language_model.layers.{layer}");
        for (name, outputs, inputs) in [
            ("self_attn.q_proj", 2048, HIDDEN),
            ("self_attn.k_proj", 1024, HIDDEN),
            ("self_attn.v_proj", 1024, HIDDEN),
            ("self_attn.o_proj", HIDDEN, 2048),
            ("mlp.gate_proj", 6144, HIDDEN),
            ("mlp.up_proj", 6144, HIDDEN),
            ("mlp.down_proj", HIDDEN, 6144),
        ] {
            made.nvfp4(&format!("{prefix}.{name}"), outputs, inputs);
            say(&format!("{prefix}.{name}"), "NVFP4", Some(16));
        }
        for (name, side) in [("input_layernorm", HIDDEN), ("post_attention_layernorm", HIDDEN)] {
            made.add(&format!("{prefix}.{name}.weight"), "F16", &[side]);
        }
        for name in ["self_attn.q_norm", "self_attn.k_norm"] {
            made.add(&format!("{prefix}.{name}.weight"), "F16", &[128]);
        }
    }
    made.nvfp4("lm_head", 151_936, HIDDEN);
    say("lm_head", "NVFP4", Some(16));
    made.add("model.visual.patch_embed.proj.weight", "F16", &[VISION, 3, 2, 16, 16]);
    made.add("model.visual.patch_embed.proj.bias", "F16", &[VISION]);
    made.add("model.visual.pos_embed.weight", "F16", &[2304, VISION]);
    let mut vision = |module: String, outputs, inputs| {
        made.fp8(&module, outputs, inputs);
        made.add(&format!("{module}.bias"), "F16", &[outputs]);
        say(&module, "FP8", None);
    };
    for block in 0..24 {
        let prefix = format!("model.visual.blocks.{block}");
        vision(format!("{prefix}.attn.qkv"), 3 * VISION, VISION);
        vision(format!("{prefix}.attn.proj"), VISION, VISION);
        vision(format!("{prefix}.mlp.linear_fc1"), 4096, VISION);
        vision(format!("{prefix}.mlp.linear_fc2"), VISION, 4096);
    }
    let mergers: Vec<String> = ["merger".to_owned()]
        .into_iter()
        .chain((0..3).map(|merger| format!("deepstack_merger_list.{merger}")))
        .map(|merger| format!("model.visual.{merger}"))
        .collect();
    for merger in &mergers {
        vision(format!("{merger}.linear_fc1"), 4096, 4096);
        vision(format!("{merger}.linear_fc2"), HIDDEN, 4096);
    }
    let blocks = (0..24).flat_map(|block| ["norm1", "norm2"].map(|norm| format!("model.visual.blocks.{block}.{norm}")));
    for norm in blocks.chain(mergers.iter().map(|merger| format!("{merger}.norm"))) {
        made.add(&format!("{norm}.weight"), "F16", &[VISION]);
        made.add(&format!("{norm}.bias"), "F16", &[VISION]);
    }
    let quantization =
        Quantization { quant_algo: Some("MIXED_PRECISION".into()), quantized_layers: said, ..Quantization::default() };
    (made, QuantConfig { quantization, ..QuantConfig::default() })
}

#[test]
fn the_counts_of_a_public_report_follow_from_the_shapes_of_its_model() {
    let (made, config) = cosmos();
    let inspection = inspect(&made.header(), Some(config));
    assert_eq!(inspection.findings, Vec::<String>::new());
    let counts =
        |map: &BTreeMap<String, u64>| map.iter().map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>().join(", ");
    assert_eq!(counts(&inspection.dtypes), "F16 325, F32 602, F8_E4M3 301, U8 197");
    assert_eq!(counts(&inspection.formats), "FP8 104, NVFP4 197");
}

#[test]
fn what_does_not_fit_is_named_with_its_place() {
    let with = |change: fn(&mut Made)| {
        let mut made = one_layer();
        change(&mut made);
        findings(&made)
    };
    let says = |found: Vec<String>, what: &str| assert!(found.iter().any(|f| f.contains(what)), "{what}: {found:?}");
    says(with(|made| made.bytes -= 1), "the file was cut");
    says(with(|made| drop(made.tensors.remove("m.weight_scale_2"))), "no m.weight_scale_2");
    says(with(|made| drop(made.tensors.remove("m.weight_scale_2"))), "4 bytes before it belong to no tensor");
    says(with(|made| made.tensors.get_mut("m.weight_scale").unwrap().dtype = "U8".into()), "U8 instead of F8_E4M3");
    says(with(|made| made.tensors.get_mut("m.weight_scale").unwrap().shape = vec![4, 8]), "need scales of [8, 4]");
    says(with(|made| made.tensors.get_mut("m.weight").unwrap().shape = vec![256]), "weights of [256]");
    says(with(|made| made.tensors.get_mut("m.weight").unwrap().shape[0] = u64::MAX), "more than can be counted");
    says(with(|made| made.tensors.get_mut("m.weight_scale_2").unwrap().shape = vec![2]), "instead of one F32");
    says(with(|made| made.tensors.get_mut("m.input_scale").unwrap().dtype = "F31".into()), "unknown dtype F31");
    says(with(|made| made.tensors.get_mut("m.weight_scale").unwrap().data_offsets = [0, 32]), "within another tensor");
    says(with(|made| made.tensors.get_mut("m.weight").unwrap().data_offsets = [9, 3]), "its place is 9 to 3");
    says(with(|made| made.add("n.weight", "F8_E4M3", &[8, 64])), "F8_E4M3 without n.weight_scale");
    says(with(|made| made.add("n.weight", "U8", &[8, 64])), "U8 without any scale");
}

#[test]
fn the_configuration_and_the_tensors_must_say_the_same() {
    let judged = |quantization| {
        let config = QuantConfig { quantization, ..QuantConfig::default() };
        inspect(&one_layer().header(), Some(config)).findings.join("; ")
    };
    let all = |algorithm: &str| Quantization { quant_algo: Some(algorithm.into()), ..Quantization::default() };
    assert_eq!(judged(Quantization { group_size: Some(16), ..all("NVFP4") }), "");
    assert_eq!(judged(all("FP8")), "m: NVFP4, the configuration says FP8");
    assert_eq!(
        judged(Quantization { group_size: Some(32), ..all("NVFP4") }),
        "m: groups of 32 in the configuration, NVFP4 has 16"
    );
    let excluded = Quantization { exclude_modules: vec!["*m".into()], ..all("NVFP4") };
    assert_eq!(judged(excluded), "m: NVFP4, though the configuration excludes `*m`");
    let named = |name: &str, algorithm: &str| {
        let layer = LayerQuantization { quant_algo: algorithm.into(), group_size: None };
        Quantization { quantized_layers: BTreeMap::from([(name.into(), layer)]), ..all("MIXED_PRECISION") }
    };
    assert_eq!(judged(named("m", "NVFP4")), "");
    assert_eq!(judged(named("m", "FP8")), "m: the configuration says FP8, its tensors are NVFP4");
    let absent = judged(named("n", "NVFP4"));
    assert!(absent.contains("n: the configuration says NVFP4, and it is not there"), "{absent}");
    assert!(absent.contains("m: NVFP4, and the configuration does not name it"), "{absent}");
}

#[test]
fn a_pattern_means_a_module_or_all_that_it_contains() {
    for (pattern, name, is_meant) in [
        ("lm_head", "lm_head", true),
        ("lm_head", "lm_head2", false),
        ("model.visual", "model.visual.blocks.0", true),
        ("model.visual*", "model.visual2", true),
        ("*.mlp.*_proj", "model.layers.3.mlp.up_proj", true),
        ("*.mlp.*_proj", "model.layers.3.attn.q_proj", false),
        ("*", "", true),
        ("", "a", false),
        ("a*b", "a.b.c", true),
    ] {
        assert_eq!(matches(pattern, name), is_meant, "{pattern} {name}");
    }
    // Many stars on a long name take no longer than their product.
    assert!(!matches(&"a*".repeat(1000), &format!("{}b", "b".repeat(10_000))));
}

#[test]
fn a_file_that_is_wrong_everywhere_says_so_a_hundred_times() {
    let mut made = Made::default();
    (0..250).for_each(|i| made.add(&format!("m{i}.weight"), "U8", &[8, 64]));
    let inspection = inspect(&made.header(), None);
    assert_eq!((inspection.findings.len(), inspection.findings_left_out), (FINDINGS_MAX, 150));
}
