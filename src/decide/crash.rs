//! What the memory map and the stack of a crashed process say of where it was.
//!
//! Pure: text and bytes in, places out. A place is a file and an offset in it, which is the same wherever the file is
//! loaded, and so may be compared between processes, boots and machines.

use crate::model::crash::{Crash, Frame};

/// A line of `/proc/PID/maps` (proc_pid_maps(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// Whether instructions may be fetched from it.
    pub executable: bool,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether it may be read.
    pub readable: bool,
    /// The offset in the file at which it begins.
    pub offset: u64,
    /// The path of the file, a name in brackets, or nothing.
    pub path: String,
}

impl Mapping {
    /// Whether `address` lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The name of its file without directories; empty for memory that is no file's.
    pub fn module(&self) -> &str {
        if !self.path.starts_with('/') {
            return if self.path.starts_with("[vdso") { "[vdso]" } else { "" };
        }
        let file = self.path.trim_end_matches(" (deleted)");
        file.rsplit('/').next().unwrap_or(file)
    }
}

/// The mappings in the text of `/proc/PID/maps`, in ascending order; a line that is none is left out.
pub fn mappings(maps: &str) -> Vec<Mapping> {
    maps.lines().filter_map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hex(fields.next()?)?;
    let path = fields.nth(2).unwrap_or_default().trim_start().to_owned();
    let may = |what| permissions.contains(what);
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        executable: may('x'),
        writable: may('w'),
        readable: may('r'),
        offset,
        path,
    })
}

/// The mapping that holds `address`.
pub fn mapping_of(address: u64, mappings: &[Mapping]) -> Option<&Mapping> {
    let index = mappings.partition_point(|mapping| mapping.end <= address);
    mappings.get(index).filter(|mapping| mapping.contains(address))
}

/// Whether an instruction of a call ends where `before` ends: only then is the address behind it one that a function
/// returns to. `before` are the bytes right before the address, at least 7 of them on x86-64 and 4 on arm64.
pub fn ends_with_call(before: &[u8]) -> bool {
    if cfg!(target_arch = "aarch64") {
        let Some(word) = before.last_chunk::<4>() else { return false };
        let word = u32::from_le_bytes(*word);
        // BL, and BLR with its variants that authenticate (Arm ARM, C4.1.66).
        return word >> 26 == 0b100101 || word & 0xfeff_f000 == 0xd63f_0000;
    }
    let at = |back: usize| before.len().checked_sub(back).and_then(|index| before.get(index)).copied();
    // CALL rel32, or CALL r/m of 2 to 7 bytes: opcode FF with 2 in the middle of ModRM (Intel SDM 2, CALL).
    let indirect =
        (2..=7).any(|length| at(length) == Some(0xff) && at(length - 1).is_some_and(|modrm| modrm >> 3 & 7 == 2));
    at(5) == Some(0xe8) || indirect
}

/// The return addresses among the `words` of a stack, in order. `code_before` gives the bytes right before an address.
pub fn return_addresses<'a>(
    words: impl Iterator<Item = u64> + 'a,
    mappings: &'a [Mapping],
    mut code_before: impl FnMut(u64) -> Option<Vec<u8>> + 'a,
) -> impl Iterator<Item = u64> + 'a {
    words.filter(move |&word| {
        mapping_of(strip(word), mappings).is_some_and(|mapping| mapping.executable)
            && code_before(strip(word)).is_some_and(|code| ends_with_call(&code))
    })
}

/// An address without the signature that arm64 puts into unused bits of a return address. User addresses have 48 bits
/// there; a kernel with 52 gives them only to who asks.
pub fn strip(address: u64) -> u64 {
    if cfg!(target_arch = "aarch64") { address & 0x0000_ffff_ffff_ffff } else { address }
}

/// Libraries in which a fault of their caller shows: what is above their frames is what counts.
const PASSED_OVER: [&str; 16] = [
    "libc.so",
    "libc-",
    "ld-linux",
    "ld-2",
    "ld-musl",
    "libpthread",
    "libstdc++",
    "libgcc_s",
    "libc++",
    "libm.so",
    "libm-",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libasan",
    "[vdso]",
];

/// Whether `module` is an allocator, a C library or another that only passes a fault of its caller on.
pub fn is_passed_over(module: &str) -> bool {
    PASSED_OVER.iter().any(|name| module.starts_with(name))
}

/// The frame that a fault is known by: the first that is not passed over, else the very first.
pub fn telling_frame(crash: &Crash) -> Option<&Frame> {
    let frames = &crash.thread.frames;
    let is_telling = |frame: &&Frame| !frame.module.is_empty() && !is_passed_over(&frame.module);
    // An address in no file is where a wild jump led: whoever jumped stands behind it.
    frames.iter().find(is_telling).or_else(|| frames.first())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::crash::{Address, CrashedThread};

    /// Constructed.
    const MAPS: &str = "\
5581a0000000-5581a0001000 r--p 00000000 fe:00 1234  /opt/edgellm/edgellm-build
7fa0f1dca000-7fa0f1dcb000 r--p 00000000 fe:00 1235                       /opt/edgellm/lib compiler.so
7fa0f1dcb000-7fa0f1dcc000 r-xp 00001000 fe:00 1235                       /opt/edgellm/lib compiler.so
7fa0f1e00000-7fa0f1e21000 rw-p 00000000 00:00 0 
7fa0f2000000-7fa0f2100000 r-xp 00022000 fe:00 1236                       /lib/libc.so.6 (deleted)
7ffd10000000-7ffd10021000 rw-p 00000000 00:00 0                          [stack]
not a mapping
";

    #[test]
    fn an_address_is_a_place_in_a_file_wherever_that_is_loaded() {
        let mappings = mappings(MAPS);
        assert_eq!(mappings.len(), 6);
        let at = |address: u64| {
            let mapping = mapping_of(address, &mappings)?;
            Some((mapping.module(), address - mapping.start + mapping.offset, mapping.executable))
        };
        assert_eq!(at(0x7fa0f1dcb183), Some(("lib compiler.so", 0x1183, true)));
        assert_eq!(at(0x7fa0f2000010), Some(("libc.so.6", 0x22010, true)));
        assert_eq!(at(0x7fa0f1e00008), Some(("", 8, false)));
        assert_eq!(at(0x7ffd10000000), Some(("", 0, false)));
        assert_eq!((at(0x28), at(0x7fa0f1dcc000), at(u64::MAX)), (None, None, None));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn only_what_follows_a_call_is_a_return_address() {
        for (code, is_call) in [
            (&[0x90, 0x90, 0xe8, 1, 2, 3, 4][..], true),
            (&[0, 0, 0, 0, 0, 0xff, 0xd0], true),
            (&[0, 0xff, 0x15, 1, 2, 3, 4], true),
            (&[0, 0, 0, 0, 0x41, 0xff, 0xd4], true),
            (&[0, 0, 0, 0, 0, 0xff, 0xe0], false),
            (&[0x90; 7], false),
            (&[0xd0], false),
        ] {
            assert_eq!(ends_with_call(code), is_call, "{code:x?}");
        }
        let mappings = mappings(MAPS);
        let words = [0x7fa0f1dcb183, 5, 0x7fa0f1e00008, 0x7fa0f2000010];
        let call = vec![0, 0, 0xe8, 0, 0, 0, 0];
        let found: Vec<u64> = return_addresses(words.into_iter(), &mappings, |_| Some(call.clone())).collect();
        assert_eq!(found, [0x7fa0f1dcb183, 0x7fa0f2000010]);
    }

    fn crash(modules: &[&str]) -> Crash {
        let frame = |module: &&str| Frame { module: (*module).into(), build_id: None, offset: Address(0x10) };
        let thread = CrashedThread { name: "t".into(), count: 1, frames: modules.iter().map(frame).collect() };
        Crash {
            signal: 6,
            code: -6,
            address: None,
            program: String::new(),
            thread,
            others: Vec::new(),
            registers: Default::default(),
        }
    }

    #[test]
    fn a_fault_is_known_by_who_called_the_allocator() {
        let of = |modules: &[&str]| telling_frame(&crash(modules)).map(|frame| frame.module.clone());
        assert_eq!(
            of(&["libc.so.6", "libstdc++.so.6", "libnvinfer.so.10", "app"]).as_deref(),
            Some("libnvinfer.so.10")
        );
        assert_eq!(of(&["app", "libc.so.6"]).as_deref(), Some("app"));
        assert_eq!(of(&["libc.so.6"]).as_deref(), Some("libc.so.6"));
        assert_eq!(of(&["", "app"]).as_deref(), Some("app"));
        assert_eq!(of(&[]), None);
        assert!(
            !is_passed_over("libcublas.so.12") && !is_passed_over("libcuda.so.1") && !is_passed_over("libmyelin.so")
        );
    }
}
