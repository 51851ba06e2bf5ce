//! Reading and writing what is there, now: never waiting, and not believing that nothing is there because the
//! runtime has not looked yet.

use std::future::pending;
use std::io;

use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;

/// What could be done at once.
pub(super) enum Now {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The other end is closed, or as good as.
    End,
}

/// What the runtime watches for us.
pub(super) trait Watched: std::os::fd::AsFd {
    /// Waits until there is something to read.
    async fn readable(&self) -> io::Result<()>;
    /// Reads, or clears the runtime's belief that there is something to read.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
}

impl Watched for UnixStream {
    async fn readable(&self) -> io::Result<()> {
        UnixStream::readable(self).await
    }
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        UnixStream::try_read(self, buffer)
    }
}

impl Watched for Receiver {
    async fn readable(&self) -> io::Result<()> {
        Receiver::readable(self).await
    }
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Receiver::try_read(self, buffer)
    }
}

/// Waits until `watched` can be read; for ever if it is closed.
pub(super) async fn readable<W: Watched>(watched: Option<&W>) {
    match watched {
        // An error shows again when it is read.
        Some(watched) => drop(watched.readable().await),
        None => pending().await,
    }
}

/// Waits until `stream` can be written; for ever if it is closed.
pub(super) async fn writable(stream: Option<&UnixStream>) {
    match stream {
        Some(stream) => drop(stream.writable().await),
        None => pending().await,
    }
}

/// Reads what is there.
pub(super) fn read_now<W: Watched>(watched: &W, buffer: &mut [u8]) -> Now {
    match watched.try_read(buffer) {
        Ok(0) => Now::End,
        Ok(count) => Now::Bytes(count),
        // The runtime knows only what it was told when it last slept; the kernel may have more.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => now(rustix::io::read(watched, buffer)),
        Err(_) => Now::End,
    }
}

/// Writes what fits.
pub(super) fn write_now(stream: &UnixStream, bytes: &[u8]) -> Now {
    match stream.try_write(bytes) {
        Ok(count) => Now::Bytes(count),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => now(rustix::io::write(stream, bytes)),
        Err(_) => Now::End,
    }
}

fn now(result: rustix::io::Result<usize>) -> Now {
    match result {
        Ok(0) => Now::End,
        Ok(count) => Now::Bytes(count),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Now::Nothing,
        Err(_) => Now::End,
    }
}
