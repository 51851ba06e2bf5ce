//! The shipped kernel images: which one a device runs, unpacked.
//!
//! Owns the bytes of `kernels/prebuilt`, which `kernels/compile` makes and a test compares with the sources. A board
//! therefore needs no compiler: cubins for the Jetsons and the test bench, PTX for everything else from sm_80 on.

use std::io::Read;

use super::error::{Architecture, GpuError};
use crate::model::settings::Code;

macro_rules! image {
    ($name:literal, $target:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/prebuilt/", $name, ".", $target, ".gz"))
    };
}

macro_rules! images {
    ($name:literal) => {
        Images {
            sm_87: image!($name, "sm_87.cubin"),
            sm_90: image!($name, "sm_90.cubin"),
            sm_110: image!($name, "sm_110.cubin"),
            ptx: image!($name, "compute_80.ptx"),
        }
    };
}

/// The source files of the kernels; each is an image of its own, loaded when its first kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// `dequantize_4bit.cu`
    Dequantize4bit,
    /// `gemv_4bit.cu`
    Gemv4bit,
    /// `matmul_4bit.cu`
    Matmul4bit,
    /// `nvfp4.cu`
    Nvfp4,
    /// `philox_init.cu`
    PhiloxInit,
    /// `quantize_4bit.cu`
    Quantize4bit,
    /// `quantize_8bit.cu`
    Quantize8bit,
    /// `reductions.cu`
    Reductions,
}

impl Source {
    /// Every source file.
    pub const ALL: [Self; 8] = [
        Self::Dequantize4bit,
        Self::Gemv4bit,
        Self::Matmul4bit,
        Self::Nvfp4,
        Self::PhiloxInit,
        Self::Quantize4bit,
        Self::Quantize8bit,
        Self::Reductions,
    ];

    /// The name of the file without its ending.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dequantize4bit => "dequantize_4bit",
            Self::Gemv4bit => "gemv_4bit",
            Self::Matmul4bit => "matmul_4bit",
            Self::Nvfp4 => "nvfp4",
            Self::PhiloxInit => "philox_init",
            Self::Quantize4bit => "quantize_4bit",
            Self::Quantize8bit => "quantize_8bit",
            Self::Reductions => "reductions",
        }
    }

    const fn images(self) -> &'static Images {
        match self {
            Self::Dequantize4bit => &images!("dequantize_4bit"),
            Self::Gemv4bit => &images!("gemv_4bit"),
            Self::Matmul4bit => &images!("matmul_4bit"),
            Self::Nvfp4 => &images!("nvfp4"),
            Self::PhiloxInit => &images!("philox_init"),
            Self::Quantize4bit => &images!("quantize_4bit"),
            Self::Quantize8bit => &images!("quantize_8bit"),
            Self::Reductions => &images!("reductions"),
        }
    }
}

/// The compressed images of one source.
struct Images {
    sm_87: &'static [u8],
    sm_90: &'static [u8],
    sm_110: &'static [u8],
    ptx: &'static [u8],
}

/// A compiled form of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// Jetson Orin.
    Sm87,
    /// H100, H200, GH200.
    Sm90,
    /// Jetson Thor.
    Sm110,
    /// PTX, which the driver compiles for any device from sm_80 on.
    Compute80,
}

impl Target {
    /// Every target.
    pub const ALL: [Self; 4] = [Self::Sm87, Self::Sm90, Self::Sm110, Self::Compute80];

    /// The compiler's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sm87 => "sm_87",
            Self::Sm90 => "sm_90",
            Self::Sm110 => "sm_110",
            Self::Compute80 => "compute_80",
        }
    }

    /// What a device of `found` runs: machine code only where it was compiled for that very chip, and PTX elsewhere
    /// unless `code` forbids it.
    ///
    /// # Errors
    /// [`GpuError::NoKernelImage`].
    pub fn choose(found: Architecture, code: Code) -> Result<Self, GpuError> {
        let none = GpuError::NoKernelImage { found, built: Self::ALL.map(Self::name).to_vec() };
        let cubin = match (found.major, found.minor) {
            (8, 7) => Some(Self::Sm87),
            (9, 0) => Some(Self::Sm90),
            (11, 0) => Some(Self::Sm110),
            (_, _) => None,
        };
        let ptx = (found.major >= 8).then_some(Self::Compute80);
        match code {
            Code::Any => cubin.or(ptx),
            Code::Cubin => cubin,
            Code::Ptx => ptx,
        }
        .ok_or(none)
    }
}

/// The unpacked image of `source` for `target`; PTX ends with a zero byte, as the driver wants it.
///
/// # Errors
/// [`GpuError::DamagedImage`] if it cannot be unpacked.
pub(super) fn unpack(source: Source, target: Target) -> Result<Vec<u8>, GpuError> {
    let images = source.images();
    let (packed, is_text) = match target {
        Target::Sm87 => (images.sm_87, false),
        Target::Sm90 => (images.sm_90, false),
        Target::Sm110 => (images.sm_110, false),
        Target::Compute80 => (images.ptx, true),
    };
    let mut image = Vec::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_end(&mut image)
        .map_err(|error| GpuError::DamagedImage(format!("{}.{}: {error}", source.name(), target.name())))?;
    if is_text {
        image.push(0);
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use serde_json::Value;
    use sha2::{Digest, Sha256};

    use super::*;

    fn kernels() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
    }

    fn hex(digest: impl AsRef<[u8]>) -> String {
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The files of `kernels/` with this ending, by name.
    fn files(ending: &str) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = fs::read_dir(kernels()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == ending));
        files.sort();
        files
    }

    #[test]
    fn the_images_were_made_from_the_sources_that_are_here() {
        let manifest: Value =
            serde_json::from_slice(&fs::read(kernels().join("prebuilt/manifest.json")).unwrap()).unwrap();
        let entries = manifest.as_array().unwrap();
        for source in Source::ALL {
            let mut digest = Sha256::new();
            digest.update(fs::read(kernels().join(format!("{}.cu", source.name()))).unwrap());
            for header in files("cuh") {
                digest.update(fs::read(header).unwrap());
            }
            let digest = hex(digest.finalize());
            for target in Target::ALL {
                let of_both = |entry: &&Value| {
                    entry["source"] == format!("{}.cu", source.name()) && entry["target"] == target.name()
                };
                let entry = entries.iter().find(of_both).expect("an image for every source and target");
                assert_eq!(entry["source_sha256"], digest, "{} changed: run kernels/compile", source.name());
                let mut image = unpack(source, target).unwrap();
                if target == Target::Compute80 {
                    image.pop();
                }
                assert_eq!(entry["image_sha256"], hex(Sha256::digest(&image)), "{} {}", source.name(), target.name());
            }
        }
        assert_eq!(entries.len(), Source::ALL.len() * Target::ALL.len());
    }

    #[test]
    fn every_kernel_source_has_a_twin_and_is_shipped() {
        let sources = files("cu");
        assert_eq!(sources.len(), Source::ALL.len());
        for source in sources {
            assert!(source.with_extension("rs").exists(), "{} has no twin", source.display());
        }
    }

    #[test]
    fn machine_code_is_chosen_only_for_its_own_chip_and_ptx_from_sm_80_on() {
        let choose = |major, minor, code| Target::choose(Architecture { major, minor }, code);
        assert_eq!(choose(8, 7, Code::Cubin), Ok(Target::Sm87));
        assert_eq!(choose(9, 0, Code::Cubin), Ok(Target::Sm90));
        assert_eq!(choose(11, 0, Code::Cubin), Ok(Target::Sm110));
        assert_eq!(choose(8, 9, Code::Ptx), Ok(Target::Compute80));
        assert_eq!(choose(8, 9, Code::Any), Ok(Target::Compute80));
        assert_eq!(choose(8, 7, Code::Any), Ok(Target::Sm87));
        for (major, minor, code) in [(8, 9, Code::Cubin), (8, 6, Code::Cubin), (7, 2, Code::Ptx), (12, 0, Code::Cubin)]
        {
            let error = choose(major, minor, code).unwrap_err();
            assert!(error.to_string().contains("sm_87, sm_90, sm_110, compute_80"), "{error}");
        }
    }

    #[test]
    fn an_image_is_machine_code_or_text_that_ends_with_zero() {
        for source in Source::ALL {
            for target in [Target::Sm87, Target::Sm90, Target::Sm110] {
                assert!(unpack(source, target).unwrap().starts_with(b"\x7fELF"));
            }
            let text = unpack(source, Target::Compute80).unwrap();
            assert_eq!(text.iter().filter(|&&byte| byte == 0).count(), 1);
            assert!(String::from_utf8(text).unwrap().contains(".target sm_80"));
        }
    }
}
