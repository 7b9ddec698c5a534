//! Events per second.
fn main() {}
