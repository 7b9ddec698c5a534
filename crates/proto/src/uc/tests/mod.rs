mod faults;
mod pair;
mod payload;
mod placement;
mod programs;
mod rules;
mod windows;
