//! Whether a directory survives a power cut, as far as the mount table tells.

use std::path::{Path, PathBuf};

use rustix::fs::statfs;

use crate::model::journal::Persistence;

/// `TMPFS_MAGIC`, `RAMFS_MAGIC` and `OVERLAYFS_SUPER_MAGIC` of linux/magic.h.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const OVERLAY: u64 = 0x794c_7630;

/// Overlays may stand on overlays; more than this many are taken for unproven.
const OVERLAYS_MAX: u32 = 8;

/// Whether what is written under `path` is on a disk.
pub fn persistence(path: &Path) -> Persistence {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut path = path.to_path_buf();
    for _ in 0..OVERLAYS_MAX {
        match statfs(&path).map(|fs| fs.f_type as u64 & 0xffff_ffff) {
            Ok(TMPFS | RAMFS) => return Persistence::Volatile,
            Ok(OVERLAY) => match upper_dir(&mounts, &path) {
                Some(upper) if upper.is_dir() => path = upper,
                _ => return Persistence::Unproven,
            },
            Ok(_) => return Persistence::Persistent,
            Err(_) => return Persistence::Unproven,
        }
    }
    Persistence::Unproven
}

/// The upper directory of the overlay that `path` is on, from the lines of `/proc/self/mountinfo`.
fn upper_dir(mounts: &str, path: &Path) -> Option<PathBuf> {
    let of_path = mounts.lines().filter_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        let mut filesystem = filesystem.split(' ');
        let kind = filesystem.next()?;
        let options = filesystem.nth(1)?;
        (path.starts_with(point) && kind == "overlay").then_some((point.len(), options))
    });
    let (_, options) = of_path.max_by_key(|(length, _)| *length)?;
    options.split(',').find_map(|option| option.strip_prefix("upperdir=")).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_directory_of_the_innermost_overlay_is_found() {
        let mounts = "22 1 0:20 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/outer,workdir=/w\n\
                      30 22 0:25 / /data rw,noatime shared:1 - overlay none rw,lowerdir=/l,upperdir=/inner,workdir=/w\n\
                      31 22 8:1 / /boot rw - ext4 /dev/sda1 rw\n";
        assert_eq!(upper_dir(mounts, Path::new("/data/results")), Some("/inner".into()));
        assert_eq!(upper_dir(mounts, Path::new("/home")), Some("/outer".into()));
        assert_eq!(upper_dir("", Path::new("/")), None);
    }

    #[test]
    fn memory_is_not_a_disk() {
        if Path::new("/dev/shm").is_dir() {
            assert_eq!(persistence(Path::new("/dev/shm")), Persistence::Volatile);
        }
    }
}
