#[test] fn p(){ std::println!("{}", super::markdown()); }
