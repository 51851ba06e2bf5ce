//! Counters of the A/B boot slots in UEFI variables: a boot uses up a try until it is verified, and a slot without tries
//! does not boot any more.

use super::{ATTRIBUTE, Collector};
use crate::decide::gate::BootSlots;
use crate::model::evidence::Fact;
use crate::perform::host::Sysroot;

/// Where UEFI variables are files: four bytes of attributes, then the value.
const VARIABLES: &str = "sys/firmware/efi/efivars";

/// The vendor of these variables: NVIDIA's public GUID, `gNVIDIAPublicVariableGuid` in edk2-nvidia.
const VENDOR: &str = "781e084c-a330-417c-b678-38e696380cb9";

/// The variables that say how many tries a slot has left and whether it is trusted.
const WANTED: [&str; 6] = [
    "RootfsRetryCountA",
    "RootfsRetryCountB",
    "RootfsRetryCountMax",
    "RootfsStatusSlotA",
    "RootfsStatusSlotB",
    "BootChainFwCurrent",
];

pub(super) fn read(collector: &mut Collector<'_>) {
    for name in WANTED {
        collector.attribute(format!("efi/{name}"), &format!("{VARIABLES}/{name}-{VENDOR}"));
    }
}

/// Tries that the boot slots have left.
pub fn boot_slots(sysroot: &Sysroot) -> BootSlots {
    let [most, a, b] = ["Max", "A", "B"].map(|which| retry_count(sysroot, &format!("RootfsRetryCount{which}")));
    BootSlots { most, a, b }
}

/// The counter in the variable `name`.
fn retry_count(sysroot: &Sysroot, name: &str) -> Fact<u32> {
    sysroot.bytes(&format!("{VARIABLES}/{name}-{VENDOR}"), ATTRIBUTE).and_then(|bytes| {
        let value: Option<[u8; 4]> = bytes.get(4..8).and_then(|value| value.try_into().ok());
        value.map_or_else(|| Fact::Garbled(format!("{bytes:02x?}")), |value| Fact::Known(u32::from_le_bytes(value)))
    })
}
