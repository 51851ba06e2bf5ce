//! The environment of a trial: the changes that a cell's settings make to the invoker's.
//!
//! Owns the variables that stand for an axis. It reads no environment itself: what was there before comes in.

use std::collections::BTreeMap;

use crate::model::settings::{Code, EnvOp, JitCache, ModuleLoading, Settings, WorkloadSettings};
use crate::model::template::{RunTimeHole, Template};
use crate::perform::supervise::EnvChange;

/// A text of the settings that was never filled: they did not come from a valid matrix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the value of {variable} has the placeholder {{{name}}} that nothing fills")]
pub struct UnfilledName {
    /// The variable.
    pub variable: String,
    /// The placeholder.
    pub name: String,
}

/// The changes that `settings` make to the environment `before`, with `hole` for what only the machine knows.
///
/// The axes `module_loading`, `jit_cache` and `code` come first, so that `env` has the last word. Their variables are
/// those of the CUDA programming guide; on a CPU nothing reads them. Our own workload chooses its code itself: its
/// variable would reach cuBLAS too, whose PTX does not cover every device.
///
/// # Errors
/// If a text has a name that was never filled.
pub fn changes(
    settings: &Settings,
    before: &BTreeMap<String, String>,
    hole: impl Fn(RunTimeHole) -> String,
) -> Result<Vec<EnvChange>, UnfilledName> {
    let mut changes = driver_variables(settings, &hole);
    for (variable, operations) in &settings.env {
        let set_by_axis = changes.iter().find_map(|change| match change {
            EnvChange::Set(name, value) => (name == variable).then(|| value.clone()),
            EnvChange::Unset(_) => None,
        });
        let mut value = set_by_axis.or_else(|| before.get(variable).cloned());
        let text = |template: &Template| {
            let unfilled = |name| UnfilledName { variable: variable.clone(), name };
            template.resolve(&hole).map_err(unfilled)
        };
        for operation in operations {
            value = match operation {
                EnvOp::Set(template) => Some(text(template)?),
                EnvOp::Unset => None,
                EnvOp::Append(flags) => Some(appended(value, &text(flags)?)),
                EnvOp::Remove(flag) => {
                    let flag = text(flag)?;
                    value.map(|value| removed(&value, &flag))
                }
            };
        }
        changes.push(match value {
            Some(value) => EnvChange::Set(variable.clone(), value),
            None => EnvChange::Unset(variable.clone()),
        });
    }
    Ok(changes)
}

fn driver_variables(settings: &Settings, hole: impl Fn(RunTimeHole) -> String) -> Vec<EnvChange> {
    let set = |name: &str, value: &str| EnvChange::Set(name.to_owned(), value.to_owned());
    let module_loading = match settings.module_loading {
        ModuleLoading::Kept => None,
        ModuleLoading::Lazy => Some(set("CUDA_MODULE_LOADING", "LAZY")),
        ModuleLoading::Eager => Some(set("CUDA_MODULE_LOADING", "EAGER")),
    };
    let jit_cache = match settings.jit_cache {
        JitCache::Kept => None,
        JitCache::Fresh => Some(set("CUDA_CACHE_PATH", &format!("{}/jit-cache", hole(RunTimeHole::TrialDir)))),
    };
    let code = match (&settings.workload, settings.code) {
        (WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_), _) => None,
        (WorkloadSettings::Command(_), Code::Any) => None,
        (WorkloadSettings::Command(_), Code::Cubin) => Some(set("CUDA_DISABLE_PTX_JIT", "1")),
        (WorkloadSettings::Command(_), Code::Ptx) => Some(set("CUDA_FORCE_PTX_JIT", "1")),
    };
    [module_loading, jit_cache, code].into_iter().flatten().collect()
}

fn appended(value: Option<String>, flags: &str) -> String {
    match value.filter(|value| !value.is_empty()) {
        Some(value) => format!("{value} {flags}"),
        None => flags.to_owned(),
    }
}

/// `value` without each occurrence of `flag`, which may be several words.
fn removed(value: &str, flag: &str) -> String {
    let flag: Vec<&str> = flag.split_whitespace().collect();
    let mut rest: Vec<&str> = value.split_whitespace().collect();
    while let Some(at) = rest.windows(flag.len().max(1)).position(|words| words == flag) {
        rest.drain(at..at + flag.len());
    }
    rest.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::settings::{CommandSettings, Linear4bitSettings};

    fn settings(operations: &[EnvOp]) -> Settings {
        let env = BTreeMap::from([("FLAGS".to_owned(), operations.to_vec())]);
        Settings { env, ..Settings::of(WorkloadSettings::Command(CommandSettings::default())) }
    }

    fn hole(hole: RunTimeHole) -> String {
        format!("<{hole}>")
    }

    /// What becomes of FLAGS; `None` is removed.
    fn flags(before: Option<&str>, operations: &[EnvOp]) -> Option<String> {
        let before = before.map(|value| ("FLAGS".to_owned(), value.to_owned())).into_iter().collect();
        match changes(&settings(operations), &before, hole).unwrap().pop().unwrap() {
            EnvChange::Set(_, value) => Some(value),
            EnvChange::Unset(_) => None,
        }
    }

    #[test]
    fn operations_are_applied_in_their_order_to_what_was_there() {
        let literal = Template::literal;
        let append = |text| EnvOp::Append(literal(text));
        let remove = |text| EnvOp::Remove(literal(text));
        let set = |text| EnvOp::Set(literal(text));
        let cases: &[(Option<&str>, &[EnvOp], Option<&str>)] = &[
            (None, &[append("-a")], Some("-a")),
            (Some(""), &[append("-a")], Some("-a")),
            (Some("-x"), &[append("-a"), append("-b c")], Some("-x -a -b c")),
            (Some("-x -a -x"), &[remove("-x")], Some("-a")),
            (Some("-b c -b d"), &[remove("-b c")], Some("-b d")),
            (Some("-xy"), &[remove("-x")], Some("-xy")),
            (None, &[remove("-x")], None),
            (Some("-x"), &[EnvOp::Unset], None),
            (Some("-x"), &[EnvOp::Unset, append("-a")], Some("-a")),
            (Some("-x"), &[set("y"), append("z")], Some("y z")),
        ];
        for (before, operations, after) in cases {
            assert_eq!(flags(*before, operations).as_deref(), *after, "{before:?} {operations:?}");
        }
    }

    #[test]
    fn holes_are_filled_and_a_name_that_nothing_fills_is_an_error() {
        let value = flags(None, &[EnvOp::Set("{trial.dir}/x".parse().unwrap())]).unwrap();
        assert_eq!(value, "<trial.dir>/x");
        let error = changes(&settings(&[EnvOp::Set("{venv}".parse().unwrap())]), &BTreeMap::new(), hole).unwrap_err();
        assert_eq!(error.to_string(), "the value of FLAGS has the placeholder {venv} that nothing fills");
    }

    #[test]
    fn the_axes_of_the_driver_are_variables_and_env_has_the_last_word() {
        let mut settings = settings(&[EnvOp::Unset]);
        (settings.module_loading, settings.jit_cache, settings.code) =
            (ModuleLoading::Eager, JitCache::Fresh, Code::Ptx);
        settings.env.insert("CUDA_MODULE_LOADING".to_owned(), vec![EnvOp::Append(Template::literal("x"))]);
        let set = |name: &str, value: &str| EnvChange::Set(name.to_owned(), value.to_owned());
        let expected = [
            set("CUDA_MODULE_LOADING", "EAGER"),
            set("CUDA_CACHE_PATH", "<trial.dir>/jit-cache"),
            set("CUDA_FORCE_PTX_JIT", "1"),
            set("CUDA_MODULE_LOADING", "EAGER x"),
            EnvChange::Unset("FLAGS".to_owned()),
        ];
        assert_eq!(changes(&settings, &BTreeMap::new(), hole).unwrap(), expected);
        // Our own workload chooses its image by itself.
        settings.workload = WorkloadSettings::Linear4bit(Linear4bitSettings::of(Vec::new()));
        let changes = changes(&settings, &BTreeMap::new(), hole).unwrap();
        assert!(!changes.contains(&set("CUDA_FORCE_PTX_JIT", "1")), "{changes:?}");
        assert!(changes.contains(&set("CUDA_CACHE_PATH", "<trial.dir>/jit-cache")), "{changes:?}");
    }
}
