//! Redaction of the many short texts of a report, most of which come again and again.

use std::collections::HashMap;

use crate::model::journal::Invoker;
use crate::perform::host::Sysroot;
use crate::perform::redact::{Redactor, Secrets};

/// The most texts that are remembered.
const KNOWN_MAX: usize = 10_000;

/// Variables of an invoker's environment that name a person.
const NAMING: [&str; 3] = ["USER", "LOGNAME", "SUDO_USER"];

/// Takes the names of people and machines out of texts, or leaves them as they are.
pub struct Veil {
    redactor: Option<Redactor>,
    known: HashMap<String, String>,
}

impl Veil {
    /// One that knows the secrets of the machine under `sysroot`, and those of whoever invoked the runs.
    pub fn new<'i>(sysroot: &Sysroot, invokers: impl IntoIterator<Item = &'i Invoker>) -> Self {
        let mut secrets = Secrets::of(sysroot);
        let env = invokers.into_iter().flat_map(|invoker| &invoker.env);
        for (name, value) in env {
            if NAMING.contains(&name.as_str()) {
                secrets.users.push(value.clone());
            }
            if name == "HOSTNAME" {
                secrets.hosts.push(value.clone());
            }
        }
        Self { redactor: Some(Redactor::new(&secrets)), known: HashMap::new() }
    }

    /// One that leaves everything as it is.
    pub fn transparent() -> Self {
        Self { redactor: None, known: HashMap::new() }
    }

    /// Whether it takes anything out.
    pub fn is_opaque(&self) -> bool {
        self.redactor.is_some()
    }

    /// `text` without names.
    pub fn text(&mut self, text: &str) -> String {
        let Some(redactor) = &mut self.redactor else { return text.to_owned() };
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        let redacted = String::from_utf8_lossy(&redactor.redact("", text.as_bytes().to_vec())).into_owned();
        if self.known.len() < KNOWN_MAX {
            self.known.insert(text.to_owned(), redacted.clone());
        }
        redacted
    }

    /// The content of the file `name` without names.
    pub fn file(&mut self, name: &str, bytes: Vec<u8>) -> Vec<u8> {
        match &mut self.redactor {
            Some(redactor) => redactor.redact(name, bytes),
            None => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::boards::assemble;

    #[test]
    fn who_invoked_the_run_is_a_secret_wherever_it_is_read() {
        let tree = assemble("orin-nano-super-jp62", None);
        let sysroot = Sysroot::new(tree.path().to_path_buf());
        let env = [("USER", "mallory"), ("PATH", "/bin")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let invoker = Invoker { env: env.to_vec(), ..Invoker::default() };
        let mut veil = Veil::new(&sysroot, Some(&invoker));
        for _ in 0..2 {
            assert_eq!(veil.text("mallory ran /home/mallory/x in /bin"), "user-1 ran /home/user-1/x in /bin");
        }
        assert_eq!(veil.file("stderr.log", b"by mallory".to_vec()), b"by user-1");
        assert_eq!(Veil::transparent().text("mallory"), "mallory");
    }
}
