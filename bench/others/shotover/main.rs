// Shotover as it comes: all that it does stands in its configuration.
fn main() {
    shotover::runner::Shotover::new().run_block();
}
