//! What NVIDIA's Jetson boards say about themselves: releases, boards, power modes. Pure parsing; no file is read here.
//!
//! Sources: files of Jetson Linux R35 to R39 and their device trees, the tables of jetson_stats, NVIDIA's release notes.

use std::fmt;

/// A release of Jetson Linux, such as 36.4.3. Two releases may share the name of a JetPack, so this is what is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct L4t {
    /// 36 in 36.4.3.
    pub release: u32,
    /// 4 in 36.4.3.
    pub revision: u32,
    /// 3 in 36.4.3.
    pub patch: u32,
}

impl L4t {
    /// From the first line of `/etc/nv_tegra_release`: `# R36 (release), REVISION: 4.3, GCID: …`.
    ///
    /// Nothing else of the line is looked at: its date has no fixed format, and its `BOARD` is no board.
    pub fn from_release_file(text: &str) -> Option<Self> {
        let (release, revision) = text.split_once("REVISION:")?;
        let release = release.split_once('R')?.1;
        let revision = revision.split(',').next()?.trim();
        let (revision, patch) = revision.split_once('.')?;
        Some(Self {
            release: leading_number(release)?,
            revision: revision.parse().ok()?,
            patch: leading_number(patch)?,
        })
    }

    /// From the version of a package `nvidia-l4t-*`: `36.4.3-20250107174145`, or with the kernel's before it.
    pub fn from_package_version(version: &str) -> Option<Self> {
        let mut numbers = release_stamp(version)?.split('-').next()?.split('.').map(str::parse);
        match (numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()) {
            (Ok(release), Ok(revision), Ok(patch), None) => Some(Self { release, revision, patch }),
            _ => None,
        }
    }

    /// The JetPack that contains it; nothing if the table does not know it. It is never guessed.
    pub fn jetpack(&self) -> Option<&'static str> {
        JETPACKS.iter().find(|(l4t, _)| *l4t == (self.release, self.revision, self.patch)).map(|(_, name)| *name)
    }
}

impl fmt::Display for L4t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.release, self.revision, self.patch)
    }
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Releases of Jetson Linux and the JetPacks that contain them (jetson_stats, `jtop/core/jetson_variables.py`).
const JETPACKS: [((u32, u32, u32), &str); 25] = [
    ((39, 2, 1), "7.2.1"),
    ((39, 2, 0), "7.2"),
    ((39, 0, 0), "7.2 EA"),
    ((38, 4, 0), "7.1"),
    ((38, 2, 2), "7.0"),
    ((38, 2, 1), "7.0"),
    ((38, 2, 0), "7.0"),
    ((36, 5, 0), "6.2.2"),
    ((36, 4, 7), "6.2.1"),
    ((36, 4, 4), "6.2.1"),
    ((36, 4, 3), "6.2"),
    ((36, 4, 2), "6.1 (rev. 1)"),
    ((36, 4, 0), "6.1"),
    ((36, 3, 0), "6.0"),
    ((36, 2, 0), "6.0 DP"),
    ((35, 6, 4), "5.1.6"),
    ((35, 6, 3), "5.1.5"),
    ((35, 6, 2), "5.1.5"),
    ((35, 6, 1), "5.1.5"),
    ((35, 6, 0), "5.1.4"),
    ((35, 5, 0), "5.1.3"),
    ((35, 4, 1), "5.1.2"),
    ((35, 3, 1), "5.1.1"),
    ((35, 2, 1), "5.1"),
    ((35, 1, 0), "5.0.2"),
];

/// The release and build stamp at the end of a package version: `36.4.3-20250107174145` in
/// `5.15.148-tegra-36.4.3-20250107174145` too. Packages of one release have the same.
pub fn release_stamp(version: &str) -> Option<&str> {
    let (rest, stamp) = version.rsplit_once('-')?;
    let release = rest.rsplit('-').next()?;
    let stamped = stamp.len() >= 8 && stamp.bytes().all(|byte| byte.is_ascii_digit());
    let start = version.len() - release.len() - stamp.len() - 1;
    (stamped && release.contains('.')).then(|| &version[start..])
}

/// A system on chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chip {
    /// What its GPU is called by the driver.
    pub gpu: &'static str,
    /// Compute capability of its GPU.
    pub compute_capability: &'static str,
}

/// The chip that the device tree's `compatible` names.
pub fn chip(compatible: &[String]) -> Option<Chip> {
    let known = [
        ("nvidia,tegra264", "NVIDIA Thor", "11.0"),
        ("nvidia,tegra234", "Orin", "8.7"),
        ("nvidia,tegra194", "Xavier", "7.2"),
        ("nvidia,tegra186", "NVIDIA Tegra X2", "6.2"),
        ("nvidia,tegra210", "NVIDIA Tegra X1", "5.3"),
    ];
    known
        .into_iter()
        .find(|(name, ..)| compatible.iter().any(|listed| listed == name))
        .map(|(_, gpu, compute_capability)| Chip { gpu, compute_capability })
}

/// The board that the device tree's `compatible` names, by its module; nothing if the table does not know it.
///
/// It is matched as a set, because one tree may serve several modules. `spec` is `/etc/nv_boot_control.conf`, which alone
/// tells Thor's modules apart.
pub fn board(compatible: &[String], spec: &str) -> Option<String> {
    let names = |module: &str| compatible.iter().any(|listed| listed.contains(module));
    let (_, name) = MODULES.iter().find(|(module, _)| names(module))?;
    let name = if *name == "AGX Thor T5000" && spec.contains("t4000") { "Thor T4000" } else { name };
    let is_super = compatible.iter().any(|listed| listed.ends_with("-super"));
    Some(if is_super { format!("Jetson {name} Super") } else { format!("Jetson {name}") })
}

/// Numbers of modules in `compatible`.
const MODULES: [(&str, &str); 13] = [
    ("p3834-0008", "AGX Thor T5000"),
    ("p3767-0000", "Orin NX 16GB"),
    ("p3767-0001", "Orin NX 8GB"),
    ("p3767-0003", "Orin Nano 8GB"),
    ("p3767-0005", "Orin Nano 8GB"),
    ("p3767-0004", "Orin Nano 4GB"),
    ("p3701-0004", "AGX Orin 32GB"),
    ("p3701-0005", "AGX Orin 64GB"),
    ("p3701-0008", "AGX Orin Industrial"),
    ("p3701-0000", "AGX Orin"),
    ("p3668-0000", "Xavier NX"),
    ("p2888-0001", "AGX Xavier"),
    ("p3448-0000", "Nano"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_read_from_every_generation_of_the_file() {
        for (line, l4t, jetpack) in [
            (
                "# R35 (release), REVISION: 3.1, GCID: 32827747, BOARD: t186ref, EABI: aarch64, DATE: Sun Mar 19 15:19:21 UTC 2023",
                "35.3.1",
                Some("5.1.1"),
            ),
            (
                "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 01:49:37 UTC 2025\n# KERNEL_VARIANT: oot",
                "36.4.3",
                Some("6.2"),
            ),
            ("# R38 (release), REVISION: 4.0, GCID: 43443517, BOARD: generic", "38.4.0", Some("7.1")),
            (
                "# R39 (release), REVISION: 2.0, GCID: 45755727, BOARD: generic, EABI: aarch64, DATE: Mon Jun  1 09:28:48 PM UTC 2026",
                "39.2.0",
                Some("7.2"),
            ),
            ("# R41 (release), REVISION: 1.0, GCID: 1", "41.1.0", None),
        ] {
            let found = L4t::from_release_file(line).unwrap();
            assert_eq!((found.to_string().as_str(), found.jetpack()), (l4t, jetpack), "{line}");
        }
        for line in ["", "# R36 (release)", "REVISION: 4.3", "# R (release), REVISION: x.y"] {
            assert_eq!(L4t::from_release_file(line), None, "{line}");
        }
    }

    #[test]
    fn packages_of_one_release_have_one_stamp() {
        for version in ["36.4.3-20250107174145", "5.15.148-tegra-36.4.3-20250107174145"] {
            assert_eq!(release_stamp(version), Some("36.4.3-20250107174145"));
            assert_eq!(L4t::from_package_version(version).unwrap().to_string(), "36.4.3");
        }
        for version in ["", "1.0", "1.0-1", "540.4.0-beta"] {
            assert_eq!(release_stamp(version), None, "{version}");
        }
    }

    #[test]
    fn a_board_is_its_module_and_not_its_model_string() {
        let tree = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let both =
            ["nvidia,p3768-0000+p3767-0003", "nvidia,p3768-0000+p3767-0005", "nvidia,p3767-0003", "nvidia,tegra234"];
        assert_eq!(board(&tree(&both), "").as_deref(), Some("Jetson Orin Nano 8GB"));
        let thor = tree(&["nvidia,p4071-0000+p3834-0008", "nvidia,p3834-0008", "nvidia,tegra264"]);
        assert_eq!(board(&thor, "TNSPEC 3834-jetson-agx-thor-devkit-").as_deref(), Some("Jetson AGX Thor T5000"));
        assert_eq!(board(&thor, "TNSPEC 3834-jetson-agx-thor-t4000-").as_deref(), Some("Jetson Thor T4000"));
        assert_eq!(chip(&thor).unwrap().compute_capability, "11.0");
        assert_eq!(board(&tree(&["raspberrypi,4-model-b", "brcm,bcm2711"]), ""), None);
        assert_eq!(chip(&[]), None);
    }
}
