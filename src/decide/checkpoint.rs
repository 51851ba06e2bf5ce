//! What a checkpoint holds, judged from its header alone: which layers are quantised how, and what does not fit.
//!
//! Owns the layouts: which tensors of which shapes make a layer of NVFP4, FP8, NF4, FP4 or MXFP4. It reads no file and no
//! data: what a scale is worth is not known here.
//!
//! | format | tensors of a layer of N outputs and K inputs |
//! |---|---|
//! | NVFP4, ModelOpt | `weight` U8 `[N, K/2]`, `weight_scale` F8_E4M3 `[N, K/16]`, `weight_scale_2` F32 scalar (multiplies) |
//! | NVFP4, compressed-tensors | `weight_packed`, `weight_scale`, `weight_global_scale` F32 (divides) |
//! | FP8 | `weight` F8_E4M3 `[N, K]`, `weight_scale` F32 or 16-bit, scalar or per output |
//! | NF4, FP4 | `weight` one column, `weight.absmax`, `weight.quant_state.bitsandbytes__nf4` or `__fp4` |
//! | MXFP4 | `…_blocks` U8 `[…, K/32, 16]`, `…_scales` U8 `[…, K/32]` |

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::checkpoint::{Header, QuantConfig, Tensor};
use crate::model::words::words;

/// The schema of an [`Inspection`].
pub const INSPECTION_SCHEMA: &str = "jetfault-inspect-1";

/// How many findings are told; a file that is damaged everywhere says the same thousands of times.
pub const FINDINGS_MAX: usize = 100;

/// Weights that share a scale in NVFP4.
const NVFP4_GROUP: u64 = 16;
/// Weights that share a scale in MXFP4.
const MXFP4_GROUP: u64 = 32;

words! {
    /// How a layer of a checkpoint is quantised.
    CheckpointFormat {
        /// E2M1 in groups of 16 with E4M3 scales, as ModelOpt writes it.
        Nvfp4 = "NVFP4",
        /// The same as compressed-tensors writes it: the global scale divides.
        Nvfp4Reciprocal = "NVFP4 (global scale divides)",
        /// E4M3.
        Fp8 = "FP8",
        /// bitsandbytes NF4.
        Nf4 = "NF4",
        /// bitsandbytes FP4.
        Fp4 = "FP4",
        /// E2M1 in groups of 32 with E8M0 scales.
        Mxfp4 = "MXFP4",
    }
}

impl CheckpointFormat {
    /// The algorithm's name in `hf_quant_config.json` begins or ends so.
    fn is_algorithm(self, name: &str) -> bool {
        match self {
            Self::Nvfp4 | Self::Nvfp4Reciprocal => name == "NVFP4" || name == "W4A16_NVFP4",
            Self::Fp8 => name.starts_with("FP8"),
            Self::Nf4 => name == "NF4",
            Self::Fp4 => name == "FP4",
            Self::Mxfp4 => name == "MXFP4",
        }
    }
}

/// A quantised layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QuantizedLayer {
    /// The module's name.
    pub name: String,
    /// How it is quantised.
    pub format: CheckpointFormat,
    /// The shape of the tensor that holds the weights.
    pub stored: Vec<u64>,
    /// The shape of the tensor that holds the scales.
    pub scale: Vec<u64>,
}

/// What an inspection found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// [`INSPECTION_SCHEMA`].
    pub schema: String,
    /// Tensors.
    pub tensors: u64,
    /// Bytes of the data.
    pub data_bytes: u64,
    /// Tensors of each dtype.
    pub dtypes: BTreeMap<String, u64>,
    /// Quantised layers of each format.
    pub formats: BTreeMap<String, u64>,
    /// Every quantised layer.
    pub layers: Vec<QuantizedLayer>,
    /// What the configuration beside the file says, if there is one.
    pub config: Option<QuantConfig>,
    /// What does not fit, at most [`FINDINGS_MAX`].
    pub findings: Vec<String>,
    /// How many more there are.
    pub findings_left_out: u64,
}

/// Judges a checkpoint by its `header` and by the `config` beside it.
pub fn inspect(header: &Header, config: Option<QuantConfig>) -> Inspection {
    let mut found = Findings::default();
    check_places(header, &mut found);
    let layers = layers(header, &mut found);
    if let Some(config) = &config {
        check_config(header, &layers, config, &mut found);
    }
    let mut dtypes = BTreeMap::new();
    for tensor in header.tensors.values() {
        *dtypes.entry(tensor.dtype.clone()).or_default() += 1;
    }
    let mut formats = BTreeMap::new();
    for layer in &layers {
        *formats.entry(layer.format.to_string()).or_default() += 1;
    }
    Inspection {
        schema: INSPECTION_SCHEMA.to_owned(),
        tensors: header.tensors.len() as u64,
        data_bytes: header.data_bytes,
        dtypes,
        formats,
        layers,
        config,
        findings: found.told,
        findings_left_out: found.left_out,
    }
}

#[derive(Default)]
struct Findings {
    told: Vec<String>,
    left_out: u64,
}

impl Findings {
    fn add(&mut self, finding: String) {
        if self.told.len() < FINDINGS_MAX { self.told.push(finding) } else { self.left_out += 1 }
    }

    /// Adds `finding` unless it is so.
    fn expect(&mut self, is_so: bool, finding: impl FnOnce() -> String) {
        if !is_so {
            self.add(finding());
        }
    }
}

/// Whether every tensor has the bytes of its shape, within the file, and shares them with no other.
fn check_places(header: &Header, found: &mut Findings) {
    let mut places = Vec::with_capacity(header.tensors.len());
    for (name, tensor) in &header.tensors {
        let [begin, end] = tensor.data_offsets;
        if !tensor.has_known_dtype() {
            found.add(format!("{name}: unknown dtype {}", tensor.dtype));
        } else if end.checked_sub(begin).is_none_or(|bytes| tensor.bytes() != Some(bytes)) {
            let bytes = tensor.bytes().map_or_else(|| "more than can be counted".to_owned(), |bytes| bytes.to_string());
            let (dtype, shape) = (&tensor.dtype, &tensor.shape);
            found.add(format!("{name}: {dtype} {shape:?} has {bytes} bytes, its place is {begin} to {end}"));
        }
        if end > header.data_bytes {
            let data = header.data_bytes;
            found.add(format!("{name}: ends at byte {end} of the data, which has {data}: the file was cut"));
        }
        if begin < end {
            places.push((begin, end, name));
        }
    }
    places.sort_unstable();
    let mut covered = 0;
    for (begin, end, name) in places {
        found.expect(begin >= covered, || format!("{name}: begins at byte {begin}, within another tensor"));
        found.expect(begin <= covered, || format!("{name}: {} bytes before it belong to no tensor", begin - covered));
        covered = covered.max(end);
    }
}

/// Every quantised layer, recognised by the names of its tensors.
fn layers(header: &Header, found: &mut Findings) -> Vec<QuantizedLayer> {
    let mut layers = Vec::new();
    for (name, tensor) in &header.tensors {
        let of = Layout { header, name, tensor };
        let layer = if let Some(module) = name.strip_suffix(".weight_packed") {
            of.nvfp4(module, ("weight_global_scale", CheckpointFormat::Nvfp4Reciprocal), found)
        } else if let Some(module) = name.strip_suffix("_blocks") {
            of.mxfp4(module, found)
        } else if let Some(module) = name.strip_suffix(".weight") {
            of.weight(module, found)
        } else {
            None
        };
        layers.extend(layer);
    }
    layers
}

/// The tensor that holds a layer's weights, among its siblings.
#[derive(Clone, Copy)]
struct Layout<'a> {
    header: &'a Header,
    name: &'a str,
    tensor: &'a Tensor,
}

impl<'a> Layout<'a> {
    fn sibling(self, name: &str) -> Option<&'a Tensor> {
        self.header.tensors.get(name)
    }

    fn layer(self, module: &str, format: CheckpointFormat, scale: &Tensor) -> QuantizedLayer {
        QuantizedLayer {
            name: module.to_owned(),
            format,
            stored: self.tensor.shape.clone(),
            scale: scale.shape.clone(),
        }
    }

    fn weight(self, module: &str, found: &mut Findings) -> Option<QuantizedLayer> {
        match self.tensor.dtype.as_str() {
            "F8_E4M3" => self.fp8(module, found),
            "U8" if self.is_nvfp4(module) => self.nvfp4(module, ("weight_scale_2", CheckpointFormat::Nvfp4), found),
            _ => self.bitsandbytes(module, found),
        }
    }

    /// Whether its scales are those of NVFP4; other formats of packed bytes have scales of other types.
    fn is_nvfp4(self, module: &str) -> bool {
        let scale = self.sibling(&format!("{module}.weight_scale"));
        let is_global = self.sibling(&format!("{module}.weight_scale_2")).is_some();
        is_global || scale.is_some_and(|scale| scale.dtype == "F8_E4M3")
    }

    fn nvfp4(
        self,
        module: &str,
        (global_name, format): (&str, CheckpointFormat),
        found: &mut Findings,
    ) -> Option<QuantizedLayer> {
        let (name, shape) = (self.name, &self.tensor.shape);
        found.expect(self.tensor.dtype == "U8", || format!("{name}: {} instead of U8", self.tensor.dtype));
        let Some(scale) = self.sibling(&format!("{module}.weight_scale")) else {
            found.add(format!("{name}: packed weights without {module}.weight_scale"));
            return None;
        };
        found.expect(scale.dtype == "F8_E4M3", || format!("{module}.weight_scale: {} instead of F8_E4M3", scale.dtype));
        match (shape.as_slice(), scale.shape.as_slice()) {
            ([rows, columns], [scale_rows, groups]) => {
                let inputs = columns.saturating_mul(2);
                let fits = rows == scale_rows && inputs == groups.saturating_mul(NVFP4_GROUP);
                found.expect(fits, || {
                    let expected = [*rows, inputs / NVFP4_GROUP];
                    format!("{module}: {inputs} inputs in groups of {NVFP4_GROUP} need scales of {expected:?}, they are {:?}", scale.shape)
                });
            }
            _ => found.add(format!("{module}: weights of {shape:?} with scales of {:?}", scale.shape)),
        }
        let global_name = format!("{module}.{global_name}");
        match self.sibling(&global_name) {
            Some(global) => {
                let is_scalar = global.dtype == "F32" && global.elements() == Some(1);
                found.expect(is_scalar, || {
                    format!("{global_name}: {} {:?} instead of one F32", global.dtype, global.shape)
                });
            }
            None => found.add(format!("{module}: no {global_name}")),
        }
        Some(self.layer(module, format, scale))
    }

    fn fp8(self, module: &str, found: &mut Findings) -> Option<QuantizedLayer> {
        let Some(scale) = self.sibling(&format!("{module}.weight_scale")) else {
            found.add(format!("{}: F8_E4M3 without {module}.weight_scale", self.name));
            return None;
        };
        let rows = self.tensor.shape.first().copied().unwrap_or(1);
        let fits = scale.elements().is_some_and(|elements| elements == 1 || elements == rows);
        found.expect(fits, || {
            format!("{module}: scales of {:?} are neither one nor one for each of {rows} outputs", scale.shape)
        });
        Some(self.layer(module, CheckpointFormat::Fp8, scale))
    }

    fn bitsandbytes(self, module: &str, found: &mut Findings) -> Option<QuantizedLayer> {
        let state = |word: &str| self.sibling(&format!("{}.quant_state.bitsandbytes__{word}", self.name)).is_some();
        let format = match (state("nf4"), state("fp4")) {
            (true, false) => CheckpointFormat::Nf4,
            (false, true) => CheckpointFormat::Fp4,
            (true, true) => {
                found.add(format!("{module}: states of both NF4 and FP4"));
                CheckpointFormat::Nf4
            }
            (false, false) => {
                let has_scale = self.sibling(&format!("{module}.weight_scale")).is_some();
                found.expect(has_scale || self.tensor.dtype != "U8", || format!("{}: U8 without any scale", self.name));
                return None;
            }
        };
        let absmax_name = format!("{}.absmax", self.name);
        let Some(absmax) = self.sibling(&absmax_name) else {
            found.add(format!("{module}: no {absmax_name}"));
            return None;
        };
        let is_nested = self.sibling(&format!("{}.nested_absmax", self.name)).is_some();
        let expected = if is_nested { "U8" } else { "F32" };
        found.expect(absmax.dtype == expected, || {
            let nested = if is_nested { "nested" } else { "plain" };
            format!("{absmax_name}: {} instead of {expected}, as {nested} statistics are", absmax.dtype)
        });
        Some(self.layer(module, format, absmax))
    }

    fn mxfp4(self, module: &str, found: &mut Findings) -> Option<QuantizedLayer> {
        let scales_name = format!("{module}_scales");
        let scale = self.sibling(&scales_name)?;
        let fits = self
            .tensor
            .shape
            .split_last()
            .is_some_and(|(bytes, groups)| *bytes == MXFP4_GROUP / 2 && groups == scale.shape);
        found.expect(fits && self.tensor.dtype == "U8" && scale.dtype == "U8", || {
            format!("{module}: blocks {:?} with scales {:?}", self.tensor.shape, scale.shape)
        });
        Some(self.layer(module, CheckpointFormat::Mxfp4, scale))
    }
}

/// Whether the configuration says of every layer what its tensors show.
fn check_config(header: &Header, layers: &[QuantizedLayer], config: &QuantConfig, found: &mut Findings) {
    let said = &config.quantization;
    let by_name: BTreeMap<&str, &QuantizedLayer> = layers.iter().map(|layer| (layer.name.as_str(), layer)).collect();
    for (name, layer) in &said.quantized_layers {
        match by_name.get(name.as_str()) {
            Some(shown) if shown.format.is_algorithm(&layer.quant_algo) => {
                check_group(name, layer.group_size, shown, found);
            }
            Some(shown) => {
                found.add(format!(
                    "{name}: the configuration says {}, its tensors are {}",
                    layer.quant_algo, shown.format
                ));
            }
            None => {
                let there =
                    if header.tensors.contains_key(&format!("{name}.weight")) { "not quantised" } else { "not there" };
                found.add(format!("{name}: the configuration says {}, and it is {there}", layer.quant_algo));
            }
        }
    }
    let is_mixed = said.quant_algo.as_deref() == Some("MIXED_PRECISION");
    for layer in layers {
        if let Some(pattern) = said.exclude_modules.iter().find(|pattern| matches(pattern, &layer.name)) {
            found.add(format!("{}: {}, though the configuration excludes `{pattern}`", layer.name, layer.format));
        } else if is_mixed {
            let is_named = said.quantized_layers.contains_key(&layer.name);
            found.expect(is_named, || {
                format!("{}: {}, and the configuration does not name it", layer.name, layer.format)
            });
        } else if let Some(algorithm) = &said.quant_algo {
            let agrees = layer.format.is_algorithm(algorithm);
            found.expect(agrees, || format!("{}: {}, the configuration says {algorithm}", layer.name, layer.format));
            check_group(&layer.name, said.group_size, layer, found);
        }
    }
}

fn check_group(name: &str, group_size: Option<u64>, layer: &QuantizedLayer, found: &mut Findings) {
    let shown = match layer.format {
        CheckpointFormat::Nvfp4 | CheckpointFormat::Nvfp4Reciprocal => NVFP4_GROUP,
        CheckpointFormat::Mxfp4 => MXFP4_GROUP,
        CheckpointFormat::Fp8 | CheckpointFormat::Nf4 | CheckpointFormat::Fp4 => return,
    };
    if let Some(said) = group_size.filter(|said| *said != shown) {
        found.add(format!("{name}: groups of {said} in the configuration, {} has {shown}", layer.format));
    }
}

/// Whether `name`, or a module above it, is what `pattern` means; `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to go on if what follows the last star does not fit: the star takes one byte more.
    let mut retry = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, n));
        } else if p < pattern.len() && n < name.len() && pattern[p] == name[n] {
            p += 1;
            n += 1;
        } else if p == pattern.len() && (n == name.len() || name[n] == b'.' || pattern.ends_with(b"*")) {
            return true;
        } else {
            match retry {
                Some((star, taken)) if taken < name.len() => {
                    (p, n) = (star, taken + 1);
                    retry = Some((p, n));
                }
                Some(_) | None => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests;
