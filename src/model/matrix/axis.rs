//! The axes that the tool knows: their names, which workloads have them, their defaults, and how a level is read.
//!
//! Owns the catalogue and the reading of one level. Which levels a matrix has, and how they combine, is not known here.

use std::collections::BTreeMap;

mod values;

use super::document::{Node, Value};
use super::draft::Change;
use super::problem::{Problems, list, suggest};
use super::profile::{Profile, Profiles};
use super::reader::{boolean, inside, parsed, text, within, word};
use crate::model::settings::*;
use crate::model::words::words;

use values::{batch, blocksize, layers, machine_level, or_none, steps};

/// The longest sequence of layers, after repetition; several hundred layers make a 7B model.
pub const SEQUENCE_MAX: usize = 4096;

/// The most threads that make weights.
pub const INIT_THREADS_MAX: u32 = 1024;

/// The most repetitions of the block of a stack; the largest models have little more than a hundred.
pub const LAYERS_MAX: u32 = 1024;

/// The most repetitions inside one trial; a longer soak is several trials.
pub const ITERATIONS_MAX: u32 = 1_000_000;

words! {
    /// An axis that the tool knows by itself.
    Knob {
        /// How device memory is requested.
        Allocator = "allocator",
        /// Addresses of a process's memory.
        Aslr = "aslr",
        /// Host memory held by another process.
        Ballast = "ballast",
        /// Rows of the input.
        Batch = "batch",
        /// Weights per absmax.
        Blocksize = "blocksize",
        /// How far a stage record is awaited.
        Breadcrumbs = "breadcrumbs",
        /// When results are compared.
        Check = "check",
        /// Clocks held.
        Clocks = "clocks",
        /// Machine code that may be used.
        Code = "code",
        /// How the boot of a cold trial comes about.
        ColdFrom = "cold_from",
        /// Another program before, beside or after.
        Companion = "companion",
        /// Type of the product.
        Compute = "compute",
        /// CPUs that may be used.
        Cpus = "cpus",
        /// Nested statistics.
        DoubleQuant = "double_quant",
        /// Drop clean page cache first.
        DropCaches = "drop_caches",
        /// Idle time between iterations.
        Gap = "gap",
        /// When dropped layers die.
        Gc = "gc",
        /// Runtime power management of the GPU.
        GpuPm = "gpu_pm",
        /// Layers after the last block of a stack.
        Head = "head",
        /// Where memory is cleaned up.
        Hygiene = "hygiene",
        /// What a clean-up does.
        HygieneSteps = "hygiene_steps",
        /// Which executable or library is under test.
        Identity = "identity",
        /// Where weights are made.
        Init = "init",
        /// Threads that make weights.
        InitThreads = "init_threads",
        /// Type of the activations.
        Input = "input",
        /// Repetitions inside a trial.
        Iterations = "iterations",
        /// The driver's JIT cache.
        JitCache = "jit_cache",
        /// Whose kernels run.
        Kernels = "kernels",
        /// Repetitions of the block of a stack.
        Layers = "layers",
        /// Limits of a process's resources.
        Limits = "limits",
        /// Limit of the trial's cgroup.
        MemoryMax = "memory_max",
        /// When the driver loads kernels.
        ModuleLoading = "module_loading",
        /// What watches the process.
        Observer = "observer",
        /// What packed weights go through before they are used.
        Passage = "passage",
        /// nvpmodel name or id.
        PowerMode = "power_mode",
        /// Page cache filled first.
        PrefillCache = "prefill_cache",
        /// What runs in an earlier process.
        Prelude = "prelude",
        /// The model whose layers a stack has.
        Profile = "profile",
        /// The 4-bit format.
        Quant = "quant",
        /// The layers, in order.
        Sequence = "sequence",
        /// The start state asked for.
        Start = "start",
        /// Type that packed bytes are stored as.
        Storage = "storage",
        /// Stream of the framework.
        Stream = "stream",
        /// Swap.
        Swap = "swap",
        /// Sampling while the trial runs.
        Telemetry = "telemetry",
        /// One small layer first, in the same process.
        Warmup = "warmup",
    }
}

/// What runs, as the matrix says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadKind {
    /// The user's program.
    Command,
    /// 4-bit layers one after another.
    Linear4bit,
    /// 4-bit layers all at once.
    Stack,
}

impl Knob {
    /// Whether a workload of this kind has the axis.
    pub const fn belongs_to(self, kind: WorkloadKind) -> bool {
        match self {
            Self::Head | Self::Layers | Self::Profile => matches!(kind, WorkloadKind::Stack),
            Self::Allocator
            | Self::Batch
            | Self::Blocksize
            | Self::Check
            | Self::Compute
            | Self::DoubleQuant
            | Self::Gc
            | Self::Hygiene
            | Self::HygieneSteps
            | Self::Init
            | Self::InitThreads
            | Self::Input
            | Self::Kernels
            | Self::Passage
            | Self::Quant
            | Self::Sequence
            | Self::Storage
            | Self::Stream
            | Self::Warmup => matches!(kind, WorkloadKind::Linear4bit | WorkloadKind::Stack),
            Self::Aslr
            | Self::Ballast
            | Self::Breadcrumbs
            | Self::Clocks
            | Self::Code
            | Self::ColdFrom
            | Self::Companion
            | Self::Cpus
            | Self::DropCaches
            | Self::Gap
            | Self::GpuPm
            | Self::Identity
            | Self::Iterations
            | Self::JitCache
            | Self::Limits
            | Self::MemoryMax
            | Self::ModuleLoading
            | Self::Observer
            | Self::PowerMode
            | Self::PrefillCache
            | Self::Prelude
            | Self::Start
            | Self::Swap
            | Self::Telemetry => true,
        }
    }

    /// The level that a matrix has without saying so.
    pub const fn default_label(self) -> &'static str {
        match self {
            Self::Allocator => "caching",
            Self::Ballast | Self::PrefillCache => "0B",
            Self::Batch | Self::Iterations => "1",
            Self::Blocksize => "64",
            Self::Breadcrumbs => "async",
            Self::Check => "end",
            Self::Aslr
            | Self::Clocks
            | Self::GpuPm
            | Self::JitCache
            | Self::Limits
            | Self::ModuleLoading
            | Self::PowerMode
            | Self::Swap => "kept",
            Self::Code | Self::Start => "any",
            Self::ColdFrom => "reboot",
            Self::Companion
            | Self::Head
            | Self::Hygiene
            | Self::Identity
            | Self::MemoryMax
            | Self::Observer
            | Self::Passage
            | Self::Prelude
            | Self::Profile
            | Self::Sequence
            | Self::Warmup => "none",
            Self::Compute | Self::Input => "bf16",
            Self::Cpus | Self::Layers => "all",
            Self::DoubleQuant => "true",
            Self::DropCaches => "false",
            Self::Gap => "0s",
            Self::Gc => "never",
            Self::HygieneSteps => "drop empty_cache sync",
            Self::Init => "host",
            Self::InitThreads => "0",
            Self::Kernels => "bnb",
            Self::Quant => "nf4",
            Self::Storage => "uint8",
            Self::Stream => "legacy",
            Self::Telemetry => "on",
        }
    }
}

/// What reading a level needs to know of the rest of the matrix.
pub(super) struct Context<'m> {
    pub(super) shapes: &'m BTreeMap<String, Shape>,
    pub(super) profiles: &'m Profiles,
    pub(super) kind: WorkloadKind,
}

impl Context<'_> {
    /// Reads one level of `knob`.
    pub(super) fn level(&self, knob: Knob, node: &Node, problems: &mut Problems) -> Option<Change> {
        if matches!(&node.value, Value::String(text) if text.is_empty()) {
            problems.error(node.span, format!("a level of `{knob}` cannot be empty"));
            return None;
        }
        if knob.belongs_to(WorkloadKind::Command) {
            machine_level(knob, node, problems)
        } else {
            self.layer_level(knob, node, problems)
        }
    }

    /// The axes of the 4-bit workloads.
    fn layer_level(&self, knob: Knob, node: &Node, problems: &mut Problems) -> Option<Change> {
        let what = knob.as_str();
        macro_rules! word {
            ($type:ty, $field:ident) => {{
                let value = word::<$type>(node, &format!("level of `{what}`"), <$type>::WORDS, problems)?;
                Change::linear4bit(what, move |settings| settings.$field = value)
            }};
        }
        macro_rules! value {
            ($read:expr, $field:ident) => {{
                let value = $read?;
                Change::linear4bit(what, move |settings| settings.$field = value.clone())
            }};
        }
        Some(match knob {
            Knob::Allocator => word!(AllocatorKind, allocator),
            Knob::Batch => value!(batch(node, problems), batch),
            Knob::Blocksize => value!(blocksize(node, problems), blocksize),
            Knob::Check => word!(Check, check),
            Knob::Compute => word!(FloatType, compute),
            Knob::DoubleQuant => value!(boolean(node, problems), double_quant),
            Knob::Gc => {
                value!(self.points::<Gc>(node, |points| points.labels().map(str::to_owned).collect(), problems), gc)
            }
            Knob::Hygiene => {
                value!(
                    self.points::<Hygiene>(node, |points| points.labels().map(str::to_owned).collect(), problems),
                    hygiene
                )
            }
            Knob::HygieneSteps => value!(steps(node, problems), hygiene_steps),
            Knob::Init => word!(Init, init),
            Knob::InitThreads => value!(within(node, 0..=INIT_THREADS_MAX, problems), init_threads),
            Knob::Input => word!(FloatType, input),
            Knob::Kernels => word!(KernelSet, kernels),
            Knob::Passage => word!(Passage, passage),
            Knob::Quant => word!(QuantType, quant),
            Knob::Sequence => value!(self.sequence(node, problems), sequence),
            Knob::Storage => word!(Storage, storage),
            Knob::Stream => word!(StreamKind, stream),
            Knob::Warmup => value!(or_none(node, |node| parsed(node, problems)), warmup),
            Knob::Head => {
                let head = or_none(node, |node| self.sequence(node, problems))?;
                Change::stack(what, move |stack| stack.head = head.clone().unwrap_or_default())
            }
            Knob::Layers => {
                let layers = layers(node, problems)?;
                Change::new(what, move |draft| draft.layers = layers)
            }
            Knob::Profile => {
                let profile = or_none(node, |node| self.profile(node, problems).cloned())?;
                Change::stack(what, move |stack| {
                    // "none" leaves what the sequence and the head say.
                    let Some(Profile { layers, block, head }) = &profile else { return };
                    stack.block.sequence.clone_from(block);
                    (stack.head, stack.layers) = (head.clone(), *layers);
                })
            }
            Knob::Aslr
            | Knob::Ballast
            | Knob::Breadcrumbs
            | Knob::Clocks
            | Knob::Code
            | Knob::ColdFrom
            | Knob::Companion
            | Knob::Cpus
            | Knob::DropCaches
            | Knob::Gap
            | Knob::GpuPm
            | Knob::Identity
            | Knob::Iterations
            | Knob::JitCache
            | Knob::Limits
            | Knob::MemoryMax
            | Knob::ModuleLoading
            | Knob::Observer
            | Knob::PowerMode
            | Knob::PrefillCache
            | Knob::Prelude
            | Knob::Start
            | Knob::Swap
            | Knob::Telemetry => machine_level(knob, node, problems)?,
        })
    }

    fn profile(&self, node: &Node, problems: &mut Problems) -> Option<&Profile> {
        let name = text(node, problems)?;
        let found = self.profiles.get(name);
        if found.is_none() {
            let names: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            problems.error(node.span, format!("unknown profile `{name}`")).hint(suggest(name, &names));
        }
        found?.as_ref()
    }

    /// A sequence: a string with one letter per layer, or a list of names of shapes.
    pub(super) fn sequence(&self, node: &Node, problems: &mut Problems) -> Option<Vec<Layer>> {
        let names: Vec<(String, super::problem::Span)> = match &node.value {
            Value::String(letters) => letters
                .char_indices()
                .map(|(at, letter)| (letter.to_string(), inside(node, letters, at..at + letter.len_utf8())))
                .collect(),
            Value::Array(nodes) => {
                nodes.iter().filter_map(|node| Some((text(node, problems)?.to_owned(), node.span))).collect()
            }
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Table(_) => {
                problems
                    .error(node.span, format!("expected a sequence, found {}", node.kind()))
                    .hint("a sequence is a string with one letter per layer, \"ABC\", or a list of names of shapes");
                return None;
            }
        };
        if names.is_empty() || names.len() > SEQUENCE_MAX {
            problems.error(node.span, format!("a sequence has 1 to {SEQUENCE_MAX} layers, this one {}", names.len()));
            return None;
        }
        let mut layers = Vec::with_capacity(names.len());
        let mut undefined: Vec<&str> = Vec::new();
        for (name, span) in &names {
            match self.shapes.get(name) {
                Some(&shape) => layers.push(Layer { label: name.clone(), shape }),
                // A letter that is missing twice in a sequence is one mistake.
                None if undefined.contains(&name.as_str()) => {}
                None => {
                    undefined.push(name);
                    self.undefined_shape(name, *span, problems);
                }
            }
        }
        undefined.is_empty().then_some(layers)
    }

    fn undefined_shape(&self, name: &str, span: super::problem::Span, problems: &mut Problems) {
        let shapes: Vec<&str> = self.shapes.keys().map(String::as_str).collect();
        let hint = if shapes.is_empty() {
            "a `[shapes]` table with entries such as `A = [4096, 32768]` is needed".to_owned()
        } else {
            format!("`[shapes]` defines {}", list(&shapes))
        };
        problems.error(span, format!("shape `{name}` is not defined")).hint(hint);
    }

    /// Hygiene or collection points, whose labels must be shapes.
    fn points<T>(&self, node: &Node, labels: impl Fn(&T) -> Vec<String>, problems: &mut Problems) -> Option<T>
    where
        T: std::str::FromStr<Err: std::fmt::Display>,
    {
        let points: T = parsed(node, problems)?;
        let undefined: Vec<String> =
            labels(&points).into_iter().filter(|label| !self.shapes.contains_key(label)).collect();
        for label in &undefined {
            self.undefined_shape(label, node.span, problems);
        }
        undefined.is_empty().then_some(points)
    }
}
