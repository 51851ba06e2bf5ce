//! Settings of the machine that outlive a trial: what a run may change, and must put back.
//!
//! Owns their names, in the order in which they are changed. It must not know how one is read or set.

use super::words::words;

words! {
    /// A setting of the machine. The order is the order of changes: a power mode sets clocks of its own, so clocks come
    /// after it.
    MachineSetting {
        /// The mode of nvpmodel: `NAME (ID)`.
        PowerMode = "power_mode",
        /// Devices that memory is swapped to.
        Swap = "swap",
        /// Runtime power management of the GPU: the word in its `power/control`.
        GpuPm = "gpu_pm",
        /// Range of the GPU's clock.
        Clocks = "clocks",
    }
}

impl MachineSetting {
    /// Whether it is the same after a reboot. nvpmodel keeps its mode in `/var/lib/nvpmodel/status`; a boot makes all
    /// others anew.
    pub fn survives_reboot(self) -> bool {
        match self {
            Self::PowerMode => true,
            Self::Swap | Self::GpuPm | Self::Clocks => false,
        }
    }
}
