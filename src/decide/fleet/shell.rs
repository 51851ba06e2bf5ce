//! A command line for the shell of the far side: `ssh` joins its arguments with spaces and has a shell split them again.

/// A word that no command line can hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} has a zero byte, which no argument can have")]
pub struct NulInWord(pub String);

/// The line from which a POSIX shell makes exactly the words `argv`.
///
/// # Errors
/// If a word holds a zero byte.
pub fn shell_line<'w>(argv: impl IntoIterator<Item = &'w str>) -> Result<String, NulInWord> {
    let words: Result<Vec<String>, NulInWord> = argv.into_iter().map(shell_word).collect();
    Ok(words?.join(" "))
}

/// Within single quotes every byte but the quote itself is itself (POSIX.1-2017, XCU 2.2.2).
fn shell_word(word: &str) -> Result<String, NulInWord> {
    if word.contains('\0') {
        return Err(NulInWord(word.to_owned()));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Ok(word.to_owned());
    }
    Ok(format!("'{}'", word.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// The words that the machine's own shell makes of `line`.
    fn split(line: &str) -> Vec<String> {
        let script = format!("printf '%s\\0' {line}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{line}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.strip_suffix('\0').unwrap().split('\0').map(str::to_owned).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn a_shell_makes_the_same_words_again(
            words in prop::collection::vec("([a-z/.=~-]|[ \t\n'\"\\\\$`!*?#&|;<>(){}\\[\\]%^]|[^\0]){0,12}", 1..6),
        ) {
            let line = shell_line(words.iter().map(String::as_str)).unwrap();
            prop_assert_eq!(split(&line), words);
        }
    }

    #[test]
    fn nothing_is_expanded_and_plain_words_stay_readable() {
        assert_eq!(shell_line(["jetfault", "--set", "a=b c"]).unwrap(), "jetfault --set 'a=b c'");
        let hostile = ["$(touch /tmp/x)", "`id`", "; reboot", "~", "=ls", "it's", "", "-n", "\\", "a\nb"];
        assert_eq!(split(&shell_line(hostile).unwrap()), hostile);
        assert!(shell_line(["a\0b"]).is_err());
    }
}
