//! Limits of a process's resources (getrlimit(2)), and how a matrix writes them: `nofile=64 core=unlimited`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::quantity::{Bytes, QuantityError};
use crate::model::words::words;

words! {
    /// A resource that the kernel limits for each process.
    Resource {
        /// Address space, in bytes.
        As = "as",
        /// The size of a core file, in bytes.
        Core = "core",
        /// Processor time, in seconds.
        Cpu = "cpu",
        /// Data and heap, in bytes.
        Data = "data",
        /// The size of a file, in bytes.
        Fsize = "fsize",
        /// Memory that is kept from being swapped, in bytes.
        Memlock = "memlock",
        /// Open files.
        Nofile = "nofile",
        /// Processes of the user.
        Nproc = "nproc",
        /// The stack of the first thread, and of others by default, in bytes.
        Stack = "stack",
    }
}

impl Resource {
    /// The name that getrlimit(2) and the journal have for it.
    pub fn rlimit_name(self) -> String {
        format!("RLIMIT_{}", self.as_str().to_ascii_uppercase())
    }
}

/// The limits in which a trial differs from its invoker, soft and hard alike; `None` is as much as there is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceLimits(pub BTreeMap<Resource, Option<u64>>);

/// The word for the invoker's limits.
const KEPT: &str = "kept";

/// The word for a limit that is none.
const UNLIMITED: &str = "unlimited";

impl FromStr for ResourceLimits {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let error = || QuantityError {
            what: "list of limits",
            expected: "\"kept\", or limits such as \"nofile=64 core=unlimited\" of as, core, cpu, data, fsize, memlock, \
                       nofile, nproc and stack",
            text: text.chars().take(64).collect(),
        };
        if text == KEPT {
            return Ok(Self::default());
        }
        let mut limits = BTreeMap::new();
        for part in text.split_whitespace() {
            let (name, most) = part.split_once('=').ok_or_else(error)?;
            let resource: Resource = name.parse().map_err(|_| error())?;
            let most = match most {
                UNLIMITED => None,
                number if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Some(number.parse().map_err(|_| error())?)
                }
                size => Some(size.parse::<Bytes>().map_err(|_| error())?.get()),
            };
            if limits.insert(resource, most).is_some() {
                return Err(error());
            }
        }
        if limits.is_empty() { Err(error()) } else { Ok(Self(limits)) }
    }
}

impl fmt::Display for ResourceLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.pad(KEPT);
        }
        let part = |(resource, most): (&Resource, &Option<u64>)| {
            let most = most.map_or_else(|| UNLIMITED.to_owned(), |most| most.to_string());
            format!("{resource}={most}")
        };
        f.pad(&self.0.iter().map(part).collect::<Vec<_>>().join(" "))
    }
}

impl From<ResourceLimits> for String {
    fn from(value: ResourceLimits) -> String {
        value.to_string()
    }
}

impl TryFrom<String> for ResourceLimits {
    type Error = QuantityError;
    fn try_from(text: String) -> Result<Self, QuantityError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_are_written_and_nothing_else_is_one() {
        for (text, written) in [
            ("kept", "kept"),
            ("nofile=64", "nofile=64"),
            ("stack=8MiB  core=unlimited", "core=unlimited stack=8388608"),
        ] {
            let limits: ResourceLimits = text.parse().unwrap();
            assert_eq!(limits.to_string(), written);
            assert_eq!(written.parse::<ResourceLimits>().unwrap(), limits);
        }
        for text in ["", "nofile", "nofile=", "nofile=many", "files=3", "nofile=1 nofile=2", "core=-1"] {
            assert!(text.parse::<ResourceLimits>().is_err(), "{text}");
        }
        assert_eq!(Resource::Nofile.rlimit_name(), "RLIMIT_NOFILE");
    }
}
