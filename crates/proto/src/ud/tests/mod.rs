mod peer;
mod programs;
mod rules;
