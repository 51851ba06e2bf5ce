//! Counters of the A/B boot slots in UEFI variables: a boot uses up a try until it is verified, and a slot without tries
//! does not boot any more.

use super::Collector;

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
