//! What a worker said: reply lines parsed, counted and checked against the conversation, and folded into the outcome.
//!
//! Nothing a child writes is trusted: lines, their number and what they add up to are bounded, and the first word
//! that is illegal ends the conversation.

use crate::model::outcome::{LastReply, Outcome};
use crate::model::protocol::{Conversation, IllegalReply, REPLIES_MAX, REPLY_BYTES_MAX, Reply};
use crate::model::verdict::StageName;
use crate::perform::exec::EXEC_FAILED;

/// The most distinct metrics and notes of one trial together: they all stand in one record.
const FACTS_MAX: usize = 8192;

/// The longest name of a metric or note, in bytes.
const FACT_NAME_BYTES_MAX: usize = 96;

/// The most bytes of all notes of one trial, as they were sent; repeated ones count again.
const NOTE_BYTES_MAX: usize = 256 * 1024;

/// How much of a garbled line is quoted, in bytes.
const QUOTED_BYTES_MAX: usize = 120;

/// How a worker broke the protocol.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    /// A line without end.
    #[error("a reply is longer than {REPLY_BYTES_MAX} bytes")]
    TooLong,
    /// Too many lines.
    #[error("more than {REPLIES_MAX} replies")]
    TooMany,
    /// Metrics and notes beyond what one record holds.
    #[error(
        "more than {FACTS_MAX} metrics and notes, {NOTE_BYTES_MAX} bytes of notes, or {FACT_NAME_BYTES_MAX} of a name"
    )]
    TooMuch,
    /// Not a reply.
    #[error("not a reply: {quoted:?} ({why})")]
    Garbled {
        /// The beginning of the line.
        quoted: String,
        /// What the parser says.
        why: String,
    },
    /// A reply that may not come where it came.
    #[error(transparent)]
    Illegal(#[from] IllegalReply),
    /// The channel closed within a line though the worker lived.
    #[error("the last reply is cut off: {quoted:?}")]
    Torn {
        /// The beginning of the line.
        quoted: String,
    },
}

/// What a reply means to the supervisor.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The worker runs.
    Hello,
    /// It enters a stage.
    Stage(StageName),
    /// The trampoline before it could not become the worker.
    NotStarted(String),
}

/// One conversation.
#[derive(Debug)]
pub(super) struct Replies {
    state: Conversation,
    partial: Vec<u8>,
    count: u64,
    note_bytes: usize,
}

impl Replies {
    /// A conversation in which nothing was said.
    pub(super) fn new() -> Self {
        Self { state: Conversation::Silent, partial: Vec::new(), count: 0, note_bytes: 0 }
    }

    /// Takes the next bytes, folds what they say into `outcome` and appends what the supervisor must act on.
    ///
    /// # Errors
    /// At the first broken rule; nothing may be pushed after it.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        outcome: &mut Outcome,
        said: &mut Vec<Said>,
    ) -> Result<(), ProtocolError> {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.extend(&bytes[..end])?;
            let line = std::mem::take(&mut self.partial);
            said.extend(self.line(&line, outcome)?);
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes)
    }

    /// The channel closed.
    ///
    /// # Errors
    /// If it closed within a line.
    pub(super) fn finish(&self) -> Result<(), ProtocolError> {
        if self.partial.is_empty() { Ok(()) } else { Err(ProtocolError::Torn { quoted: quote(&self.partial) }) }
    }

    /// Whether the exit code contradicts the last word; worker and parent are the same binary and know both.
    pub(super) fn contradicts(&self, code: i32) -> Option<String> {
        match (self.state, code) {
            (Conversation::Done, 0) => None,
            (Conversation::Done, _) => Some(format!("worker said Done and exited with code {code}")),
            (Conversation::Failed, 0) => Some("worker said Failed and exited with code 0".into()),
            (Conversation::Failed | Conversation::Silent | Conversation::Running | Conversation::Mismatched, _) => None,
        }
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        if self.partial.len() + bytes.len() >= REPLY_BYTES_MAX {
            return Err(ProtocolError::TooLong);
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn line(&mut self, line: &[u8], outcome: &mut Outcome) -> Result<Option<Said>, ProtocolError> {
        self.count += 1;
        if self.count > REPLIES_MAX {
            return Err(ProtocolError::TooMany);
        }
        if let (Conversation::Silent, Some(reason)) = (self.state, line.strip_prefix(EXEC_FAILED.as_bytes())) {
            return Ok(Some(Said::NotStarted(String::from_utf8_lossy(reason).into_owned())));
        }
        let reply: Reply = serde_json::from_slice(line)
            .map_err(|error| ProtocolError::Garbled { quoted: quote(line), why: error.to_string() })?;
        self.state = self.state.next(&reply)?;
        match &reply {
            Reply::Metric { name, .. } | Reply::Note { name, .. } if name.len() > FACT_NAME_BYTES_MAX => {
                return Err(ProtocolError::TooMuch);
            }
            Reply::Note { .. } => self.note_bytes += line.len(),
            Reply::Hello { .. } | Reply::Beat | Reply::Stage { .. } | Reply::Metric { .. } => {}
            Reply::Mismatch(_) | Reply::Done { .. } | Reply::Failed(_) => {}
        }
        let said = fold(reply, outcome);
        if outcome.metrics.len() + outcome.notes.len() > FACTS_MAX || self.note_bytes > NOTE_BYTES_MAX {
            return Err(ProtocolError::TooMuch);
        }
        Ok(said)
    }
}

/// Writes what a legal reply says into the outcome; what the supervisor must act on is returned.
fn fold(reply: Reply, outcome: &mut Outcome) -> Option<Said> {
    match reply {
        Reply::Hello { .. } => {
            outcome.last_reply = Some(LastReply::Running);
            return Some(Said::Hello);
        }
        Reply::Stage { stage } => return Some(Said::Stage(stage)),
        Reply::Beat => {}
        Reply::Metric { name, value } => {
            outcome.metrics.insert(name, value);
        }
        Reply::Note { name, text } => {
            outcome.notes.insert(name, text);
        }
        Reply::Mismatch(mismatch) => {
            outcome.mismatch.get_or_insert(mismatch);
        }
        Reply::Done { peak_memory } => {
            outcome.last_reply = Some(LastReply::Done);
            outcome.peak_memory = peak_memory;
        }
        Reply::Failed(failure) => {
            outcome.last_reply = Some(LastReply::Failed);
            outcome.failure = Some(failure);
        }
    }
    None
}

fn quote(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(QUOTED_BYTES_MAX)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::journal::LINE_BYTES_MAX;
    use crate::model::outcome::Exit;
    use crate::model::verdict::STAGES_MAX;

    const HELLO: &[u8] = b"{\"hello\":{\"protocol\":1}}\n";

    fn said(pieces: &[&[u8]]) -> (Result<(), ProtocolError>, Vec<Said>, Outcome) {
        let (mut replies, mut said, mut outcome) = (Replies::new(), Vec::new(), Outcome::of(Exit::Code(0)));
        let pushed = pieces.iter().try_for_each(|piece| replies.push(piece, &mut outcome, &mut said));
        (pushed.and_then(|()| replies.finish()), said, outcome)
    }

    #[test]
    fn replies_do_not_depend_on_how_the_bytes_arrive() {
        let stage = b"{\"stage\":{\"stage\":\"C.copy\"}}\n";
        let whole = [HELLO, stage].concat();
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        let (result, said_in_bytes, _) = said(&bytes);
        assert_eq!((result, &said_in_bytes), (Ok(()), &said(&[&whole]).1));
        assert_eq!(said_in_bytes, [Said::Hello, Said::Stage("C.copy".parse().unwrap())]);
    }

    #[test]
    fn an_unending_reply_breaks_the_protocol_before_it_fills_memory() {
        let piece = vec![b'x'; REPLY_BYTES_MAX / 2];
        assert_eq!(said(&[&piece]).0, Err(ProtocolError::Torn { quoted: "x".repeat(QUOTED_BYTES_MAX) }));
        assert_eq!(said(&[&piece, &piece]).0, Err(ProtocolError::TooLong));
    }

    #[test]
    fn garbage_and_illegal_words_break_the_protocol() {
        assert!(matches!(said(&[b"\xff\x00garbage\n"]).0, Err(ProtocolError::Garbled { .. })));
        assert!(matches!(said(&[b"\"beat\"\n"]).0, Err(ProtocolError::Illegal(_))));
        assert!(matches!(said(&[b"{\"hello\":{\"protocol\":999}}\n"]).0, Err(ProtocolError::Illegal(_))));
        assert!(matches!(said(&[HELLO, HELLO]).0, Err(ProtocolError::Illegal(_))));
    }

    #[test]
    fn one_reply_too_many_breaks_the_protocol() {
        let mut replies = Replies { count: REPLIES_MAX - 1, ..Replies::new() };
        let mut outcome = Outcome::of(Exit::Code(0));
        assert_eq!(replies.push(HELLO, &mut outcome, &mut Vec::new()), Ok(()));
        assert_eq!(replies.push(b"\"beat\"\n", &mut outcome, &mut Vec::new()), Err(ProtocolError::TooMany));
    }

    #[test]
    fn facts_that_would_not_fit_a_record_break_the_protocol() {
        let note = format!("{{\"note\":{{\"name\":\"n\",\"text\":\"{}\"}}}}\n", "x".repeat(10_000));
        let mut pieces = vec![HELLO];
        pieces.resize(2 + NOTE_BYTES_MAX / 10_000, note.as_bytes());
        assert_eq!(said(&pieces).0, Err(ProtocolError::TooMuch));
    }

    #[test]
    fn the_fullest_outcome_fits_a_record() {
        let mut outcome = Outcome::of(Exit::Code(0));
        outcome.stage_ms = (0..STAGES_MAX).map(|n| (format!("{n:064}").parse().unwrap(), u64::MAX)).collect();
        outcome.metrics = (0..FACTS_MAX).map(|n| (format!("{n:0FACT_NAME_BYTES_MAX$}"), f64::MIN)).collect();
        // A control character takes six bytes in JSON, and what a worker sends is JSON already.
        let bytes = serde_json::to_vec(&outcome).unwrap().len() + NOTE_BYTES_MAX;
        assert!(bytes < LINE_BYTES_MAX, "{bytes}");
    }

    #[test]
    fn only_the_first_words_may_be_those_of_the_trampoline() {
        let failed = format!("{EXEC_FAILED}no such file\n");
        assert_eq!(said(&[failed.as_bytes()]).1, [Said::NotStarted("no such file".into())]);
        assert!(matches!(said(&[HELLO, failed.as_bytes()]).0, Err(ProtocolError::Garbled { .. })));
    }
}
