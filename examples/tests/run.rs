//! Every example runs, and holds what it says.

use std::process::Command;

#[test]
fn your_own_transaction() {
    let output = Command::new(env!("CARGO_BIN_EXE_your_own_transaction")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches("answered 204").count(), 3, "{said}");
    assert!(said.contains("seats given: 1, facts booked: 1"), "{said}");
}
