mod large;
mod pair;
mod programs;
mod rules;
