//! Settings in the making: the baseline, changed level by level, with variables still to be filled in.
//!
//! Owns how a level acts on settings. It does not read TOML.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::model::ids::CellId;
use crate::model::settings::{
    CommandSettings, Companion, CompanionProgram, EnvOp, Linear4bitSettings, Prelude, Settings, StackSettings,
    WorkloadSettings,
};
use crate::model::template::Template;

/// The value of a variable of a command: one argument, or a list that spreads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Variable {
    One(Template),
    Many(Vec<Template>),
}

/// Settings in the making. Made by [`super::Matrix::baseline`], changed by [`Draft::apply`], ended by [`Draft::finish`].
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub(super) settings: Settings,
    pub(super) variables: BTreeMap<String, Variable>,
    /// How often the block of a stack comes, where that is said: it counts more than what a profile has, whichever was
    /// said first.
    pub(super) layers: Option<u32>,
}

/// What one level changes.
#[derive(Clone)]
pub struct Change {
    /// What it changes: an axis, `env.NAME` or a variable.
    pub(super) what: String,
    set: Arc<dyn Fn(&mut Draft) + Send + Sync>,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Change").field(&self.what).finish()
    }
}

impl Change {
    pub(super) fn new(what: &str, set: impl Fn(&mut Draft) + Send + Sync + 'static) -> Self {
        Self { what: what.to_owned(), set: Arc::new(set) }
    }

    /// A change of the settings that every workload has.
    pub(super) fn settings(what: &str, set: impl Fn(&mut Settings) + Send + Sync + 'static) -> Self {
        Self::new(what, move |draft| set(&mut draft.settings))
    }

    /// A change of the 4-bit settings; without effect on a command, for which no such level can be read.
    pub(super) fn linear4bit(what: &str, set: impl Fn(&mut Linear4bitSettings) + Send + Sync + 'static) -> Self {
        Self::new(what, move |draft| match &mut draft.settings.workload {
            WorkloadSettings::Linear4bit(linear4bit) => set(linear4bit),
            WorkloadSettings::Stack(stack) => set(&mut stack.block),
            WorkloadSettings::Command(_) => {}
        })
    }

    /// A change of the stack around the 4-bit settings.
    pub(super) fn stack(what: &str, set: impl Fn(&mut StackSettings) + Send + Sync + 'static) -> Self {
        Self::new(what, move |draft| match &mut draft.settings.workload {
            WorkloadSettings::Stack(stack) => set(stack),
            WorkloadSettings::Linear4bit(_) | WorkloadSettings::Command(_) => {}
        })
    }

    /// A change of one variable of the environment: `set` and `unset` forget what was said before.
    pub(super) fn env(name: &str, op: EnvOp) -> Self {
        let variable = name.to_owned();
        Self::settings(&format!("env.{name}"), move |settings| {
            let ops = settings.env.entry(variable.clone()).or_default();
            match op {
                EnvOp::Set(_) | EnvOp::Unset => ops.clear(),
                EnvOp::Append(_) | EnvOp::Remove(_) => {}
            }
            ops.push(op.clone());
        })
    }

    pub(super) fn variable(name: &str, value: Variable) -> Self {
        let variable = name.to_owned();
        Self::new(name, move |draft| {
            draft.variables.insert(variable.clone(), value.clone());
        })
    }
}

impl Draft {
    pub(super) fn new(workload: WorkloadSettings) -> Self {
        Self { settings: Settings::of(workload), variables: BTreeMap::new(), layers: None }
    }

    /// Makes the changes of a level, in order.
    pub fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            (change.set)(self);
        }
    }

    /// Names the cell whose artifacts a command works with; without effect on other workloads.
    pub fn need(&mut self, cell: CellId) {
        match &mut self.settings.workload {
            WorkloadSettings::Command(command) => command.needs = Some(cell),
            WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_) => {}
        }
    }

    /// The settings so far, for changes that are no level of an axis: a part of a sequence, a revision.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// The settings with every variable filled in.
    pub fn finish(self) -> Settings {
        let Self { mut settings, mut variables, layers } = self;
        if let (WorkloadSettings::Stack(stack), Some(layers)) = (&mut settings.workload, layers) {
            stack.layers = layers;
        }
        if !settings.identity.is_empty() {
            variables.entry("identity".to_owned()).or_insert(Variable::One(Template::literal(&settings.identity)));
        }
        let fill = |template: &Template| {
            template.fill(|name| match variables.get(name) {
                Some(Variable::One(value)) => Some(value),
                Some(Variable::Many(_)) | None => None,
            })
        };
        let spread = |templates: &[Template]| -> Vec<Template> {
            let filled =
                templates.iter().flat_map(|template| match template.only_name().map(|name| variables.get(name)) {
                    Some(Some(Variable::Many(values))) => values.clone(),
                    Some(Some(Variable::One(_)) | None) | None => vec![fill(template)],
                });
            filled.collect()
        };
        for op in settings.env.values_mut().flatten() {
            match op {
                EnvOp::Set(value) | EnvOp::Append(value) | EnvOp::Remove(value) => *value = fill(value),
                EnvOp::Unset => {}
            }
        }
        if let Some(Companion { program: CompanionProgram::Command(argv), .. }) = &mut settings.companion {
            *argv = spread(argv);
        }
        match &mut settings.prelude {
            Some(Prelude::Command(argv)) => *argv = spread(argv),
            Some(Prelude::Forward(_)) | None => {}
        }
        match &mut settings.workload {
            WorkloadSettings::Command(CommandSettings { argv, artifacts, cwd, loads, prepare, server, .. }) => {
                for texts in [argv, artifacts, loads, prepare] {
                    *texts = spread(texts);
                }
                for request in server.iter_mut().flat_map(|server| &mut server.requests) {
                    *request = spread(request);
                }
                *cwd = cwd.as_ref().map(fill);
            }
            WorkloadSettings::Linear4bit(_) | WorkloadSettings::Stack(_) => {}
        }
        settings
    }
}
