//! Reading the header of a checkpoint, and the configuration beside it; never its data.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::model::checkpoint::{CONFIG_BYTES_MAX, Header, HeaderError, LENGTH_BYTES, QuantConfig, header_bytes};

/// The name of the configuration that ModelOpt writes beside a checkpoint.
pub const CONFIG_NAME: &str = "hf_quant_config.json";

/// Why a checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The system's.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Its words.
        source: io::Error,
    },
    /// It is a directory, a pipe or a device.
    #[error("{} is not a file", .0.display())]
    NoFile(PathBuf),
    /// The header is none.
    #[error("cannot read {}: {source}", .path.display())]
    Header {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: HeaderError,
    },
    /// The configuration is none.
    #[error("cannot read {}: {reason}", .path.display())]
    Config {
        /// Which file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// Opens a regular file and says how long it is; a pipe is not opened, as that may wait for ever.
fn open(path: &Path) -> Result<(File, u64), CheckpointError> {
    let read = |source| CheckpointError::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(read)?.is_file() {
        return Err(CheckpointError::NoFile(path.to_owned()));
    }
    let file = File::open(path).map_err(read)?;
    let bytes = file.metadata().map_err(read)?.len();
    Ok((file, bytes))
}

/// The header of the safetensors file at `path`. Its claimed length is checked against the file before anything is
/// allocated for it.
///
/// # Errors
/// See [`CheckpointError`].
pub fn read_header(path: &Path) -> Result<Header, CheckpointError> {
    let read = |source| CheckpointError::Read { path: path.to_owned(), source };
    let header = |source| CheckpointError::Header { path: path.to_owned(), source };
    let (mut file, file_bytes) = open(path)?;
    if file_bytes < LENGTH_BYTES {
        return Err(header(HeaderError::Short(file_bytes)));
    }
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_exact(&mut length).map_err(read)?;
    let bytes = header_bytes(length, file_bytes).map_err(header)?;
    let mut json = vec![0; bytes];
    file.read_exact(&mut json).map_err(read)?;
    Header::parse(&json, file_bytes - LENGTH_BYTES - bytes as u64).map_err(header)
}

/// The configuration at `path`.
///
/// # Errors
/// See [`CheckpointError`].
pub fn read_config(path: &Path) -> Result<QuantConfig, CheckpointError> {
    let config = |reason| CheckpointError::Config { path: path.to_owned(), reason };
    let (file, bytes) = open(path)?;
    if bytes > CONFIG_BYTES_MAX {
        return Err(config(format!("it has {bytes} bytes, more than {CONFIG_BYTES_MAX}")));
    }
    let mut json = Vec::new();
    let read = |source| CheckpointError::Read { path: path.to_owned(), source };
    file.take(CONFIG_BYTES_MAX).read_to_end(&mut json).map_err(read)?;
    serde_json::from_slice(&json).map_err(|error| config(error.to_string()))
}

/// The configuration in the directory of the checkpoint at `path`, if there is one.
///
/// # Errors
/// See [`CheckpointError`].
pub fn read_config_beside(path: &Path) -> Result<Option<QuantConfig>, CheckpointError> {
    match read_config(&path.with_file_name(CONFIG_NAME)) {
        Err(CheckpointError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        config => config.map(Some),
    }
}
