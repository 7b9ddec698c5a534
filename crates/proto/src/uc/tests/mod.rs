mod faults;
mod pair;
mod programs;
mod rules;
mod windows;
