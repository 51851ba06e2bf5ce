//! `inspect`: what a checkpoint's header says.

use crate::cli::args::{DataFormat, Global, InspectArgs};
use crate::cli::errors::{Failure, Outcome};
use crate::cli::exit::Exit;
use crate::cli::{output, render};
use crate::decide::checkpoint;
use crate::perform::checkpoint::{CheckpointError, read_config_beside, read_header};

/// `jetfault inspect FILE`.
///
/// # Errors
/// See [`Failure`].
pub fn inspect(args: &InspectArgs, global: &Global) -> Outcome {
    let header = read_header(&args.file).map_err(refused)?;
    let config = read_config_beside(&args.file).map_err(refused)?;
    let inspection = checkpoint::inspect(&header, config);
    match args.format {
        DataFormat::Json => {
            let mut text = serde_json::to_vec_pretty(&inspection).expect("names of fields are text");
            text.push(b'\n');
            output::print(&text)?;
        }
        DataFormat::Text => output::print(render::inspect(&inspection, &output::style(global)).as_bytes())?,
    }
    Ok(if inspection.findings.is_empty() { Exit::Done } else { Exit::FaultFound })
}

fn refused(error: CheckpointError) -> Failure {
    let hint = match &error {
        CheckpointError::Read { .. } => "name a file that this user may read",
        CheckpointError::NoFile(_) => "name one safetensors file; of a checkpoint in parts, one part",
        CheckpointError::Header { .. } => "compare its size and checksum with the source that it was copied from",
        CheckpointError::Config { .. } => "mend the configuration, or move it away from beside the checkpoint",
    };
    Failure::new(Exit::Usage, error).hint(hint)
}
