mod pair;
mod programs;
mod rules;
