mod faults;
pub(crate) mod memory;
mod pair;
mod programs;
mod rules;
