mod faults;
mod pair;
mod placement;
mod programs;
mod rules;
mod windows;
