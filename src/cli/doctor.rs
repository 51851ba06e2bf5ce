//! `doctor`: is this machine fit for runs.

use std::env;

use crate::cli::args::{DataFormat, DoctorArgs, Global};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::{locate, output, render};
use crate::model::fitness::{FITNESS_SCHEMA, Fitness, GpuReport};
use crate::perform::doctor::{checks, examine_gpu};
use crate::perform::host::Sysroot;
use crate::workload::gpu::fitness;

/// `jetfault doctor`.
///
/// # Errors
/// See [`Failure`].
pub fn doctor(args: &DoctorArgs, global: &Global) -> Outcome {
    let sysroot = Sysroot::new(global.sysroot.clone());
    let mut checks = checks(&sysroot, &locate::results_path(global.results.as_deref()));
    let gpu = if args.gpu { Some(gpu(&sysroot)?) } else { None };
    checks.extend(gpu.as_ref().map(GpuReport::to_check));
    let fitness = Fitness { schema: FITNESS_SCHEMA.to_owned(), checks, gpu };
    match args.format {
        DataFormat::Json => output::print(&to_json(&fitness))?,
        DataFormat::Text => output::print(render::doctor(&fitness, &output::style(global)).as_bytes())?,
    }
    Ok(if fitness.is_fit() { Exit::Done } else { Exit::Unfit })
}

fn gpu(sysroot: &Sysroot) -> Result<GpuReport, Failure> {
    if !sysroot.is_live() {
        return Err(Failure::words(Exit::Usage, "a captured machine has no GPU to examine")
            .hint("leave out --gpu, or --sysroot"));
    }
    Ok(examine_gpu(&env::current_exe().or_fail(Exit::Unfit)?))
}

fn to_json(fitness: &Fitness) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(fitness).expect("names of fields are text");
    text.push(b'\n');
    text
}

/// `__gpu_check`: the child that examines the GPU; its report is the only thing on standard output.
pub fn gpu_check() -> Outcome {
    let report = serde_json::to_vec(&fitness::report()).expect("names of fields are text");
    output::print(&report).map(|()| Exit::Done)
}
