//! The pictures of a report: intervals, stages, memory, telemetry.

use super::super::{duration, megabytes};
use super::glyph::tone;
use super::svg::{Anchor, Svg};
use crate::decide::report::Rate;
use crate::decide::result::TrialResult;
use crate::model::telemetry::Sample;
use crate::model::verdict::{Counted, Verdict};

/// Width and height of the strip of one interval.
const STRIP: (f64, f64) = (240.0, 22.0);

/// The part of a strip's width beside its scale, on each side.
const STRIP_MARGIN: f64 = 8.0;

/// Where a rate of `share` stands on a strip.
fn on_strip(share: f64) -> f64 {
    STRIP_MARGIN + share * (STRIP.0 - 2.0 * STRIP_MARGIN)
}

/// The scale of the strips, for the head of their column.
pub(super) fn strip_scale() -> String {
    let mut svg = Svg::new("strip", STRIP.0, 14.0, None);
    for (share, text) in [(0.0, "0"), (0.25, ""), (0.5, "50"), (0.75, ""), (1.0, "100 %")] {
        svg.line("tick", (on_strip(share), 11.0), (on_strip(share), 14.0));
        let (anchor, x) = match share {
            0.0 => (Anchor::Start, 0.0),
            1.0 => (Anchor::End, STRIP.0),
            _ => (Anchor::Middle, on_strip(share)),
        };
        svg.text("small", (x, 9.0), anchor, text);
    }
    svg.finish()
}

/// One rate with its interval; the square is larger where there are more trials.
pub(super) fn strip(rate: &Rate) -> String {
    let mut svg = Svg::new("strip", STRIP.0, STRIP.1, None);
    let middle = STRIP.1 / 2.0;
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        svg.line("grid", (on_strip(share), 0.0), (on_strip(share), STRIP.1));
    }
    let Some(observed) = rate.observed() else { return svg.finish() };
    let class = tone(if rate.faults > 0 { Counted::Fault } else { Counted::Clean });
    let high = rate.at_most.unwrap_or(rate.high);
    let low = if rate.at_most.is_some() { 0.0 } else { rate.low };
    svg.line(class, (on_strip(low), middle), (on_strip(high), middle));
    for (share, is_end) in [(low, rate.at_most.is_none()), (high, true)] {
        if is_end {
            svg.line(class, (on_strip(share), middle - 4.0), (on_strip(share), middle + 4.0));
        }
    }
    let half = (2.0 + (rate.counted as f64).sqrt() * 0.8).min(7.0);
    svg.rect(class, (on_strip(observed) - half, middle - half), (2.0 * half, 2.0 * half), None);
    svg.finish()
}

/// Width of the bars of stages and memory.
const BAR: (f64, f64) = (560.0, 20.0);

/// How many colours stages have; further ones begin again.
pub(super) const STAGE_COLOURS: usize = 10;

/// The colour of stage `name`: the same step of different shapes (`A.copy`, `B.copy`) has the same one.
fn stage_colour(name: &str, known: &mut Vec<String>) -> usize {
    let step = name.rsplit('.').next().unwrap_or(name);
    let index = known.iter().position(|known| known == step).unwrap_or_else(|| {
        known.push(step.to_owned());
        known.len() - 1
    });
    index % STAGE_COLOURS
}

/// One stage of a bar.
pub(super) struct BarStage {
    pub(super) name: String,
    pub(super) median_ms: u64,
    pub(super) longest_ms: u64,
}

/// The median stages of a cell one after the other, on a scale that ends at `longest_ms`.
pub(super) fn stage_bar(times: &[BarStage], longest_ms: u64, known: &mut Vec<String>, label: &str) -> String {
    let mut svg = Svg::new("bar", BAR.0, BAR.1, Some(label));
    let scale = BAR.0 / longest_ms.max(1) as f64;
    let mut x = 0.0;
    for time in times {
        let width = time.median_ms as f64 * scale;
        let name = time.name.as_str();
        let title = format!("{name}: median {}, longest {}", duration(time.median_ms), duration(time.longest_ms));
        svg.rect(&format!("s{}", stage_colour(name, known)), (x, 0.0), (width, BAR.1), Some(&title));
        if width > 7.0 * name.len() as f64 + 6.0 {
            svg.text("on", (x + width / 2.0, 14.0), Anchor::Middle, name);
        }
        x += width;
    }
    svg.finish()
}

/// Peaks of memory on a scale that ends at `end`: measured as a bar, predicted as a tick, the machine's memory as a line.
pub(super) struct MemoryBar {
    pub(super) measured: Option<u64>,
    pub(super) predicted: Option<u64>,
    pub(super) limit: Option<u64>,
    pub(super) end: u64,
}

impl MemoryBar {
    pub(super) fn picture(&self, label: &str) -> String {
        let mut svg = Svg::new("bar", BAR.0, BAR.1, Some(label));
        let x = |bytes: u64| bytes as f64 / self.end.max(1) as f64 * BAR.0;
        svg.rect("track", (0.0, 3.0), (BAR.0, BAR.1 - 6.0), None);
        if let Some(bytes) = self.measured {
            let over = self.limit.is_some_and(|limit| bytes > limit);
            let title = format!("measured {} MB", megabytes(bytes));
            svg.rect(if over { "m over" } else { "m" }, (0.0, 3.0), (x(bytes), BAR.1 - 6.0), Some(&title));
        }
        if let Some(bytes) = self.predicted {
            svg.line("predicted", (x(bytes), 0.0), (x(bytes), BAR.1));
        }
        if let Some(limit) = self.limit {
            svg.line("limit", (x(limit), 0.0), (x(limit), BAR.1));
        }
        svg.finish()
    }
}

/// Width of the telemetry of a trial, of the names at its left, of the figures at its right, and of the whole.
const LEFT: f64 = 92.0;
const PLOT: f64 = 640.0;
const RIGHT: f64 = 110.0;

/// Height of the names of stages, of one measure, and of the scale of time.
const TOP: f64 = 16.0;
const LANE: f64 = 56.0;
const BOTTOM: f64 = 20.0;

/// The most bands of stages; a model of many layers has thousands, each narrower than a pixel.
const BANDS_MAX: usize = 200;

/// One measure over the time of a trial.
struct Lane {
    name: &'static str,
    unit: &'static str,
    values: Vec<Option<f64>>,
    /// A line that must not be crossed.
    limit: Option<f64>,
}

impl Lane {
    /// The range that is drawn: from 0 where there is a limit, else what was measured.
    fn range(&self) -> Option<(f64, f64)> {
        let known = || self.values.iter().copied().flatten();
        let (low, high) = (known().reduce(f64::min)?, known().reduce(f64::max)?);
        let (low, high) = match self.limit {
            Some(limit) => (0.0, limit.max(high)),
            None => (low, high),
        };
        Some(if high - low > 0.0 { (low, high) } else { (low - 1.0, high + 1.0) })
    }
}

/// What is drawn of `samples` on a machine with `memory_bytes`: measures that the machine has.
fn lanes(samples: &[Sample], memory_bytes: Option<u64>) -> Vec<Lane> {
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let of = |value: &dyn Fn(&Sample) -> Option<f64>| samples.iter().map(value).collect::<Vec<_>>();
    let memory = match memory_bytes {
        Some(all) => Lane {
            name: "memory used",
            unit: "GB",
            values: of(&|sample| sample.memory.available.map(|free| gb(all.saturating_sub(free)))),
            limit: Some(gb(all)),
        },
        None => {
            Lane { name: "available", unit: "GB", values: of(&|sample| sample.memory.available.map(gb)), limit: None }
        }
    };
    let hottest = |sample: &Sample| sample.temp_c.values().copied().flatten().reduce(f64::max);
    let power = |sample: &Sample| {
        let rails = sample.rails.values().copied().flatten();
        rails.map(|rail| rail.mw as f64 / 1000.0).reduce(f64::max)
    };
    let lanes = [
        memory,
        Lane { name: "power", unit: "W", values: of(&power), limit: None },
        Lane { name: "hottest", unit: "°C", values: of(&hottest), limit: None },
        Lane {
            name: "GPU load",
            unit: "%",
            values: of(&|sample| sample.gpu_load_permille.map(|load| load as f64 / 10.0)),
            limit: None,
        },
    ];
    lanes.into_iter().filter(|lane| lane.values.iter().any(Option::is_some)).collect()
}

/// The telemetry of a trial over its stages, which are called `names`; nothing if nothing was sampled.
pub(super) fn telemetry(
    result: &TrialResult,
    names: &[String],
    samples: &[Sample],
    memory_bytes: Option<u64>,
) -> Option<String> {
    let started = result.started.as_ref()?.uptime_ms.0 as f64;
    let lanes = lanes(samples, memory_bytes);
    let (first, last) = (samples.first()?, samples.last()?);
    if lanes.is_empty() {
        return None;
    }
    let time = |sample: &Sample| sample.uptime_ms.0 as f64 - started;
    let ended = result.outcome.as_ref().map_or(0.0, |outcome| outcome.duration_ms as f64);
    let reached = result.stages.last().map_or(0.0, |stage| stage.at_ms as f64);
    let (begin, end) = (time(first).min(0.0), time(last).max(ended).max(reached).max(1.0));
    let x = |ms: f64| LEFT + (ms - begin) / (end - begin) * PLOT;
    let height = TOP + lanes.len() as f64 * LANE + BOTTOM;
    let label = format!("Telemetry of {} over {}", result.trial, duration(end as u64));
    let mut svg = Svg::new("telemetry", LEFT + PLOT + RIGHT, height, Some(&label));
    let floor = height - BOTTOM;
    bands(&mut svg, result, names, (&x, end, floor));
    if result.judgement.verdict == Verdict::Reboot {
        let from = (time(last) - 1000.0).max(begin);
        svg.rect("last", (x(from), TOP), (x(time(last)) - x(from), floor - TOP), Some("the last second on record"));
        svg.line("end", (x(time(last)), TOP), (x(time(last)), floor));
    }
    for (index, lane) in lanes.iter().enumerate() {
        draw(&mut svg, lane, TOP + index as f64 * LANE, |index| x(time(&samples[index])));
    }
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let ms = begin + share * (end - begin);
        svg.text("small", (x(ms), height - 5.0), Anchor::Middle, &format!("{:.1} s", ms / 1000.0));
    }
    Some(svg.finish())
}

/// The stages of a trial as bands behind its measures.
fn bands(svg: &mut Svg, result: &TrialResult, names: &[String], (x, end, floor): (&dyn Fn(f64) -> f64, f64, f64)) {
    let stages = &result.stages[..result.stages.len().min(BANDS_MAX)];
    for (index, (stage, name)) in stages.iter().zip(names).enumerate() {
        let to = stages.get(index + 1).map_or(end, |next| next.at_ms as f64);
        let (from, width) = (x(stage.at_ms as f64), x(to) - x(stage.at_ms as f64));
        let class = if index.is_multiple_of(2) { "band even" } else { "band odd" };
        let title = format!("{name} from {}", duration(stage.at_ms));
        svg.rect(class, (from, TOP), (width, floor - TOP), Some(&title));
        if width > 6.0 * name.len() as f64 + 4.0 {
            svg.text("small", (from + 2.0, TOP - 4.0), Anchor::Start, name);
        }
    }
}

/// One measure in the lane that begins at `top`; `x` is where the sample of an index stands.
fn draw(svg: &mut Svg, lane: &Lane, top: f64, x: impl Fn(usize) -> f64) {
    let Some((low, high)) = lane.range() else { return };
    let (ceiling, floor) = (top + 6.0, top + LANE - 6.0);
    let y = |value: f64| floor - (value - low) / (high - low) * (floor - ceiling);
    svg.line("axis", (LEFT, top + LANE), (LEFT + PLOT, top + LANE));
    svg.text("name", (LEFT - 6.0, top + LANE / 2.0 + 4.0), Anchor::End, lane.name);
    let known = || lane.values.iter().copied().flatten();
    let (least, most) = (known().reduce(f64::min).unwrap_or(0.0), known().reduce(f64::max).unwrap_or(0.0));
    let of = lane.limit.map(|limit| format!(" of {limit:.1}")).unwrap_or_default();
    let figures = format!("{least:.1}–{most:.1}{of} {}", lane.unit);
    svg.text("small", (LEFT + PLOT + 6.0, top + LANE / 2.0 + 4.0), Anchor::Start, &figures);
    if let Some(limit) = lane.limit {
        svg.line("limit", (LEFT, y(limit)), (LEFT + PLOT, y(limit)));
    }
    svg.path("series", lane.values.iter().enumerate().map(|(index, value)| value.map(|value| (x(index), y(value)))));
}
