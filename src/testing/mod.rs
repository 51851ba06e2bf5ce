//! What tests share: exhaustive choice, and a simulated machine that dies.

pub(crate) mod odometer;

pub(crate) mod sim;

mod crashes;

pub(crate) mod constructed;

pub(crate) mod boards;
