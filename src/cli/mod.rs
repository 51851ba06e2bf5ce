//! How people speak to it: arguments, rendering, exit codes.
