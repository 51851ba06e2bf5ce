//! The journal as it is written: sequence numbers, append, sync, and the token that a synced record is.

/// A value whose record is on the disk. Only the journal can make one, after the sync returned.
#[derive(Debug)]
pub struct Durable<T>(T);

impl<T> Durable<T> {
    /// What is durable.
    pub fn get(&self) -> &T {
        &self.0
    }
}
