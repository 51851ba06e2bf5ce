//! The conversation with a child: what is written to it, what it says, and what it means that it ends.

use crate::model::outcome::EndedBy;
use crate::perform::exec::{EXEC_FAILED, EXEC_READY};
use crate::perform::supervise::pipes::{self, Now};
use crate::perform::supervise::replies::{Replies, Said};
use crate::perform::supervise::streams::READS_MAX;

use super::Child;

/// The longest message of a trampoline, in bytes.
const EXEC_MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// With whom we speak.
#[derive(Debug)]
pub(super) enum Talk {
    /// A worker.
    Worker(Replies),
    /// A trampoline: what it said so far. The program that it becomes says nothing.
    Trampoline(Vec<u8>),
}

impl Child {
    /// Writes as much of what is waiting as the socket takes. A child that does not listen is told nothing.
    pub(super) fn write_conversation(&mut self) {
        let Some(conversation) = &self.conversation else { return };
        while !self.outgoing.is_empty() {
            match pipes::write_now(conversation, self.outgoing.make_contiguous()) {
                Now::Bytes(count) => drop(self.outgoing.drain(..count)),
                Now::Nothing => return,
                Now::End => return self.outgoing.clear(),
            }
        }
    }

    pub(super) fn read_conversation(&mut self) {
        for _ in 0..READS_MAX {
            let Some(conversation) = &self.conversation else { return };
            match pipes::read_now(conversation, &mut self.buffer) {
                Now::Bytes(count) => {
                    let buffer = std::mem::take(&mut self.buffer);
                    self.hear(&buffer[..count]);
                    self.buffer = buffer;
                }
                Now::Nothing => return,
                Now::End => {
                    self.conversation = None;
                    return self.conversation_ended();
                }
            }
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        match &mut self.talk {
            Talk::Worker(replies) => {
                let mut said = Vec::new();
                let heard = replies.push(bytes, &mut self.outcome, &mut said);
                said.into_iter().for_each(|said| self.act(said));
                if let Err(error) = heard {
                    self.distrust(error.to_string());
                }
            }
            Talk::Trampoline(message) => {
                let room = EXEC_MESSAGE_BYTES_MAX.saturating_sub(message.len());
                message.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
        }
    }

    fn act(&mut self, said: Said) {
        match said {
            Said::Hello => self.run(),
            Said::Stage(stage) => self.reach(stage),
            Said::NotStarted(reason) => self.not_started = Some(reason),
        }
    }

    /// What follows a broken rule cannot be trusted: the conversation is over, and so is the child.
    pub(super) fn distrust(&mut self, why: String) {
        self.outcome.protocol_error.get_or_insert(why);
        self.conversation = None;
        self.begin_end(EndedBy::Protocol);
    }

    fn conversation_ended(&mut self) {
        match &self.talk {
            Talk::Worker(replies) => self.torn = replies.finish().err().map(|error| error.to_string()),
            Talk::Trampoline(message) => {
                let message = String::from_utf8_lossy(message);
                match message.lines().find_map(|line| line.strip_prefix(EXEC_FAILED)) {
                    Some(reason) => self.not_started = Some(reason.to_owned()),
                    // `exec` closed it: from now on the child is the user's program.
                    None => {
                        if let Some(before) = message.lines().find_map(|line| line.strip_prefix(EXEC_READY)) {
                            self.peak_before = before.parse().ok();
                            self.run();
                        }
                    }
                }
            }
        }
    }
}
