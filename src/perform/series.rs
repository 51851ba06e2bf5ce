//! The samples of a trial, read back: few enough to be drawn, whatever the trial wrote.
//!
//! A trial may leave 64 MiB of samples, and a report looks at a hundred trials. So a short log is read whole, and of a
//! long one lines at even distances and its end, without reading what lies between.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::model::telemetry::Sample;
use crate::perform::files::open_file;
use crate::perform::telemetry::{EARLIER, NEWEST};

/// The most samples that are given.
pub const SAMPLES_MAX: usize = 120;

/// So many of them are the last ones, one after the other: at four a second, the last two seconds before a reset.
const LAST: usize = 8;

/// A log of at most so many bytes is read whole.
const WHOLE_BYTES_MAX: u64 = 256 * 1024;

/// The longest line.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// The samples of the trial in `trial_dir`, in the order of their times; none if nothing was sampled. A line that is no
/// sample, such as a torn one, is passed over.
///
/// # Errors
/// If a file is there and cannot be read.
pub fn samples(trial_dir: &Path) -> io::Result<Vec<Sample>> {
    let mut by_time = BTreeMap::new();
    let mut logs = Vec::new();
    for name in [EARLIER, NEWEST] {
        match open_file(&trial_dir.join(name)) {
            Ok(file) => logs.push((file.metadata()?.len(), file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let bytes: u64 = logs.iter().map(|(bytes, _)| bytes).sum();
    for (length, file) in logs {
        if bytes <= WHOLE_BYTES_MAX {
            by_time.extend(lines(file)?.into_iter().map(|sample| (sample.uptime_ms.0, sample)));
        } else {
            let wanted = (length as u128 * (SAMPLES_MAX - LAST) as u128).div_ceil(u128::from(bytes)) as u64;
            by_time.extend(scattered(file, length, wanted)?.into_iter().map(|sample| (sample.uptime_ms.0, sample)));
        }
    }
    Ok(thinned(by_time.into_values().collect()))
}

/// At most [`SAMPLES_MAX`] of `samples`, the last [`LAST`] among them.
fn thinned(samples: Vec<Sample>) -> Vec<Sample> {
    if samples.len() <= SAMPLES_MAX {
        return samples;
    }
    let early = samples.len() - LAST;
    let wanted = SAMPLES_MAX - LAST;
    let is_kept = |index: usize| index >= early || index * wanted % early < wanted;
    samples.into_iter().enumerate().filter(|(index, _)| is_kept(*index)).map(|(_, sample)| sample).collect()
}

fn lines(file: File) -> io::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for line in BufReader::new(file.take(WHOLE_BYTES_MAX)).split(b'\n') {
        samples.extend(serde_json::from_slice::<Sample>(&line?).ok());
    }
    Ok(samples)
}

/// `wanted` samples at even distances, and those at the end.
fn scattered(mut file: File, length: u64, wanted: u64) -> io::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for turn in 0..wanted {
        file.seek(SeekFrom::Start(length / wanted * turn))?;
        let mut reader = BufReader::new((&file).take(2 * LINE_BYTES_MAX));
        let mut line = Vec::new();
        // All but the first begin in the middle of a line.
        if turn > 0 {
            (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            line.clear();
        }
        reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        samples.extend(serde_json::from_slice::<Sample>(&line).ok());
    }
    file.seek(SeekFrom::Start(length.saturating_sub(LAST as u64 * LINE_BYTES_MAX / 4)))?;
    samples.extend(lines(file)?.into_iter().rev().take(LAST));
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::model::units::UptimeMs;

    fn log(samples: u64) -> Vec<u8> {
        let line = |n: u64| serde_json::to_vec(&Sample::empty(UptimeMs(1000 + n * 250))).unwrap();
        (0..samples).flat_map(|n| [line(n), b"\n".to_vec()].concat()).collect()
    }

    fn times(dir: &Path) -> Vec<u64> {
        samples(dir).unwrap().iter().map(|sample| sample.uptime_ms.0).collect()
    }

    #[test]
    fn a_short_log_is_read_whole_and_a_torn_line_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(samples(dir.path()).unwrap(), []);
        let torn = [log(40), b"{\"uptime_ms\":99".to_vec()].concat();
        fs::write(dir.path().join(NEWEST), torn).unwrap();
        assert_eq!(times(dir.path()), (0..40).map(|n| 1000 + n * 250).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_log_is_thinned_from_its_beginning_to_its_very_end() {
        for count in [200, 5_000, 100_000] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(EARLIER), log(count)).unwrap();
            let newest = log(2 * count);
            let half = newest.len() / 2 + newest[newest.len() / 2..].iter().position(|byte| *byte == b'\n').unwrap();
            fs::write(dir.path().join(NEWEST), &newest[half + 1..]).unwrap();
            let times = times(dir.path());
            assert!((SAMPLES_MAX / 2..=SAMPLES_MAX).contains(&times.len()), "{count}: {}", times.len());
            assert_eq!(times[0], 1000, "{count}");
            let end = 1000 + (2 * count - 1) * 250;
            let last: Vec<u64> = (0..LAST as u64).rev().map(|n| end - n * 250).collect();
            assert_eq!(times[times.len() - LAST..], last, "{count}: the last seconds are whole");
            let gaps = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!(gaps <= 4 * 250 * 2 * count / SAMPLES_MAX as u64 + 1000, "{count}: {gaps}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_log_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), log(3)).unwrap();
        std::os::unix::fs::symlink("secret", dir.path().join(NEWEST)).unwrap();
        assert!(samples(dir.path()).is_err());
    }
}
