//! The rules, compiled: a set of plain words lets few lines through, patterns judge those.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::line::{Message, Speaker, embedded};
use super::rules::{KERNEL_RULES, KernelRule};

/// The rules, ready to be matched.
pub(super) static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

/// A rule with its pattern.
struct Compiled {
    rule: &'static KernelRule,
    pattern: Regex,
}

/// All rules.
pub(super) struct Table {
    words: Regex,
    rules: Vec<Compiled>,
}

/// A line that a rule matches.
pub(super) struct Matched<'a> {
    /// The rule.
    pub(super) rule: &'static KernelRule,
    /// The text that matched: the message, or what the console ran together with another.
    pub(super) text: &'a str,
    /// The groups of the rule's pattern.
    pub(super) found: Captures<'a>,
}

impl Table {
    fn new() -> Self {
        let words: Vec<String> =
            KERNEL_RULES.iter().flat_map(|rule| rule.holds).map(|word| regex::escape(word)).collect();
        let compile = |text: &str| Regex::new(text).expect("a test compiles every rule");
        let rules = KERNEL_RULES.iter().map(|rule| Compiled { rule, pattern: compile(rule.pattern) }).collect();
        Self { words: compile(&words.join("|")), rules }
    }

    /// Whether any rule could match a line; false for nearly every line of a log.
    pub(super) fn may_match(&self, line: &str) -> bool {
        self.words.is_match(line)
    }

    /// The rule that matches the message, or the last part of it that is a message of its own.
    pub(super) fn matched<'a>(&self, message: &Message<'a>) -> Option<Matched<'a>> {
        let whole = self.matching(message.text, message.speaker).next();
        whole.or_else(|| embedded(message.text).find_map(|text| self.matching(text, message.speaker).next()))
    }

    /// Every rule that matches `text`; a test shows that there is never more than one.
    pub(super) fn matching<'a>(&self, text: &'a str, speaker: Speaker) -> impl Iterator<Item = Matched<'a>> {
        let believed = move |rule: &KernelRule| speaker == Speaker::Kernel || rule.by_process;
        let holds = move |rule: &KernelRule| {
            let any = |words: &[&str]| words.iter().any(|word| text.contains(word));
            any(rule.holds) && !rule.unless.iter().any(|words| any(words))
        };
        self.rules.iter().filter(move |compiled| believed(compiled.rule) && holds(compiled.rule)).filter_map(
            move |compiled| Some(Matched { rule: compiled.rule, text, found: compiled.pattern.captures(text)? }),
        )
    }
}
