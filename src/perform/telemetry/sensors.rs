//! Which files of sysfs and procfs tell what, and one reading of them all.
//!
//! Numbers of zones, hwmon devices and cooling devices change from boot to boot, so everything is keyed by what it says
//! it is. Nothing here writes, and nothing runs a command: `jetson_clocks --show` powers the GPU up, and polling
//! `nvpmodel` makes a board stutter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use rustix::param::page_size;

use crate::decide::gpu_health::is_gpu_clock;
use crate::decide::telemetry as interpret;
use crate::model::telemetry::{Fan, Memory, OverCurrent, Pressure, Rail, Sample};
use crate::model::units::UptimeMs;
use crate::perform::gpu_health::NVGPU_DEVICES;
use crate::perform::host::Sysroot;
use crate::perform::telemetry::GpuLoad;
use crate::perform::telemetry::attribute::{Attribute, TEXT_BYTES_MAX};

/// The most entries of one class: no board has so many, and a line stays short.
const ENTRIES_MAX: usize = 64;

/// Everything that is sampled, with its open files.
#[derive(Debug)]
pub(super) struct Sensors {
    devfreq: PathBuf,
    temperatures: Vec<Named>,
    rails: Vec<(String, Attribute, Attribute)>,
    cpus: Vec<Named>,
    gpus: Vec<Named>,
    gpu_load: Option<Attribute>,
    emc: Attribute,
    throttle: Vec<Named>,
    over_current: Vec<(String, Attribute, Attribute)>,
    pwm: Option<Attribute>,
    rpm: Option<Attribute>,
    meminfo: Attribute,
    buddyinfo: Attribute,
    nvmap: Attribute,
    pressure: [Attribute; 3],
    buffer: Box<[u8]>,
}

/// One value and what it is called.
#[derive(Debug)]
struct Named {
    name: String,
    value: Attribute,
}

impl Sensors {
    /// Looks for what there is under `sysroot`.
    pub(super) fn discover(sysroot: &Sysroot) -> Self {
        let file = |relative: &str| Attribute::new(sysroot.place(relative));
        let hwmon: Vec<(String, PathBuf)> = entries(&sysroot.place("sys/class/hwmon"), "hwmon")
            .into_iter()
            .filter_map(|(_, dir)| Some((word(&dir.join("name"))?, dir)))
            .collect();
        let of =
            |name: &'static str| hwmon.iter().filter(move |(known, _)| known == name).map(|(_, dir)| dir.as_path());
        let load =
            NVGPU_DEVICES.into_iter().map(|device| sysroot.place(device).join("load")).find(|load| load.exists());
        let mut sensors = Self {
            devfreq: sysroot.place("sys/class/devfreq"),
            temperatures: typed(&sysroot.place("sys/class/thermal"), "thermal_zone", "temp"),
            rails: rails(of("ina3221")),
            // `cpuinfo_cur_freq` measures on each CPU, half a millisecond long, and would disturb what runs there
            // (kernel, drivers/cpufreq/tegra194-cpufreq.c); this is what was asked for.
            cpus: named(&sysroot.place("sys/devices/system/cpu/cpufreq"), "policy", "scaling_cur_freq"),
            gpus: Vec::new(),
            gpu_load: load.map(Attribute::new),
            emc: file("sys/kernel/debug/bpmp/debug/clk/emc/rate"),
            throttle: typed(&sysroot.place("sys/class/thermal"), "cooling_device", "cur_state"),
            over_current: over_current(of("soctherm_oc")),
            pwm: of("pwmfan").map(|dir| Attribute::new(dir.join("pwm1"))).next(),
            rpm: of("pwm_tach").map(|dir| Attribute::new(dir.join("rpm"))).next(),
            meminfo: file("proc/meminfo"),
            buddyinfo: file("proc/buddyinfo"),
            nvmap: file("sys/kernel/debug/nvmap/iovmm/clients"),
            pressure: ["memory", "cpu", "io"].map(|what| file(&format!("proc/pressure/{what}"))),
            buffer: vec![0; TEXT_BYTES_MAX].into_boxed_slice(),
        };
        // A fan is a cooling device too, and its turning is no throttling.
        sensors.throttle.retain(|device| !device.name.contains("fan"));
        sensors.find_gpus();
        sensors
    }

    /// Reads everything once.
    pub(super) fn read(&mut self, uptime_ms: UptimeMs, gpu_load: GpuLoad) -> Sample {
        if self.gpus.is_empty() {
            // The node appears with the GPU's first power-on, which may be the trial's doing.
            self.find_gpus();
        }
        Sample {
            temp_c: self.temperatures(),
            rails: self.rails.iter_mut().map(|(name, mv, ma)| (name.clone(), read_rail(mv, ma))).collect(),
            cpu_khz: numbers(&mut self.cpus),
            gpu_hz: numbers(&mut self.gpus),
            gpu_load_permille: match gpu_load {
                GpuLoad::Read => self.gpu_load.as_mut().and_then(Attribute::number),
                GpuLoad::LeftAlone => None,
            },
            emc_hz: self.emc.number(),
            throttle: numbers(&mut self.throttle),
            over_current: self
                .over_current
                .iter_mut()
                .map(|(name, events, throttles)| {
                    (name.clone(), OverCurrent { events: events.number(), throttles: throttles.number() })
                })
                .collect(),
            memory: self.memory(),
            pressure: self.pressure(),
            fan: Fan {
                pwm: self.pwm.as_mut().and_then(Attribute::number),
                rpm: self.rpm.as_mut().and_then(Attribute::number),
            },
            ..Sample::empty(uptime_ms)
        }
    }

    /// Whether sysfs tells neither temperatures nor power.
    pub(super) fn knows_no_heat_and_power(&self) -> bool {
        self.temperatures.is_empty() && self.rails.is_empty()
    }

    fn find_gpus(&mut self) {
        self.gpus = named(&self.devfreq, "", "cur_freq");
        self.gpus.retain(|device| is_gpu_clock(&device.name));
    }

    fn temperatures(&mut self) -> BTreeMap<String, Option<f64>> {
        let mut buffer = [0; 32];
        let read = |zone: &mut Named| {
            let temp_c = zone.value.text(&mut buffer).and_then(interpret::temperature);
            (zone.name.clone(), temp_c)
        };
        self.temperatures.iter_mut().map(read).collect()
    }

    fn memory(&mut self) -> Memory {
        let mut memory = Memory::default();
        if let Some(text) = self.meminfo.text(&mut self.buffer) {
            let value = |key| interpret::meminfo(text, key);
            (memory.available, memory.free) = (value("MemAvailable"), value("MemFree"));
            let swap = value("SwapTotal").zip(value("SwapFree"));
            memory.swap_used = swap.map(|(total, free)| total.saturating_sub(free));
        }
        let page_bytes = page_size() as u64;
        let text = self.buddyinfo.text(&mut self.buffer);
        let largest = text.and_then(|text| interpret::largest_free_block(text, page_bytes));
        (memory.largest_free_block, memory.largest_free_blocks) = largest.unzip();
        memory.nvmap = self.nvmap.text(&mut self.buffer).and_then(interpret::nvmap_total);
        memory
    }

    fn pressure(&mut self) -> Pressure {
        let [memory, cpu, io] = &mut self.pressure;
        let mut stall = |file: &mut Attribute| file.text(&mut self.buffer).and_then(interpret::stall);
        Pressure { memory: stall(memory), cpu: stall(cpu), io: stall(io) }
    }
}

fn numbers(named: &mut [Named]) -> BTreeMap<String, Option<u64>> {
    named.iter_mut().map(|named| (named.name.clone(), named.value.number())).collect()
}

fn read_rail(mv: &mut Attribute, ma: &mut Attribute) -> Option<Rail> {
    interpret::rail(mv.number()?, ma.number()?)
}

/// The rails of INA3221 monitors: channels with a label, a voltage and a current. Channel 7 is a sum of voltages, and
/// one that is wired to nothing is labelled NC.
fn rails<'a>(monitors: impl Iterator<Item = &'a Path>) -> Vec<(String, Attribute, Attribute)> {
    let mut names = Names::default();
    let channels = monitors.flat_map(|dir| (1..=3).map(move |number| (dir, number)));
    let rail = |(dir, number): (&Path, u32)| {
        let label = word(&dir.join(format!("in{number}_label"))).filter(|label| label != "NC")?;
        let file = |name: String| Some(dir.join(name)).filter(|path| path.exists()).map(Attribute::new);
        let (mv, ma) = (file(format!("in{number}_input"))?, file(format!("curr{number}_input"))?);
        Some((names.unique(label), mv, ma))
    };
    channels.filter_map(rail).collect()
}

/// The over-current channels of a `soctherm_oc` device.
fn over_current<'a>(devices: impl Iterator<Item = &'a Path>) -> Vec<(String, Attribute, Attribute)> {
    let channels = devices.flat_map(|dir| (1..=3).map(move |number| (dir, format!("oc{number}"))));
    let channel = |(dir, name): (&Path, String)| {
        let events = dir.join(format!("{name}_event_cnt"));
        let throttles = Attribute::new(dir.join(format!("{name}_throt_en")));
        events.exists().then(|| (name, Attribute::new(events), throttles))
    };
    channels.filter_map(channel).collect()
}

/// The file `value` of each entry of `class` that begins with `prefix`, called by what its file `type` says.
fn typed(class: &Path, prefix: &str, value: &str) -> Vec<Named> {
    let mut names = Names::default();
    let typed = |(entry, dir): (String, PathBuf)| {
        let name = names.unique(word(&dir.join("type")).unwrap_or(entry));
        Named { name, value: Attribute::new(dir.join(value)) }
    };
    entries(class, prefix).into_iter().map(typed).collect()
}

/// The file `value` of each entry of `class` that begins with `prefix`, called like the entry.
fn named(class: &Path, prefix: &str, value: &str) -> Vec<Named> {
    let named = |(name, dir): (String, PathBuf)| Named { name, value: Attribute::new(dir.join(value)) };
    entries(class, prefix).into_iter().map(named).collect()
}

/// Entries of a class that begin with `prefix`, by number: `thermal_zone2` comes before `thermal_zone10`.
fn entries(class: &Path, prefix: &str) -> Vec<(String, PathBuf)> {
    let mut entries: Vec<(String, PathBuf)> = fs::read_dir(class)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .filter(|(name, _)| name.starts_with(prefix))
        .collect();
    entries.sort_by_key(|(name, _)| (name.len(), name.clone()));
    entries.truncate(ENTRIES_MAX);
    entries
}

/// The one word that a file holds.
fn word(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().chars().take(64).collect()).filter(|text: &String| !text.is_empty())
}

/// Names that were given, so that a second zone of the same type does not take the place of the first.
#[derive(Debug, Default)]
struct Names(BTreeSet<String>);

impl Names {
    fn unique(&mut self, name: String) -> String {
        let numbered = (2..).map(|number| format!("{name}#{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !self.0.contains(name));
        let name = free.unwrap_or(name);
        self.0.insert(name.clone());
        name
    }
}
