//! What a GPU machine has to show: golden conformance, allocator peaks, and speed beside the machine's own ceilings.
//!
//! ```text
//! cargo build --release && cargo run --release --example gpu_check [-- construct kernels golden memory runs speed]
//! ```
//! `runs` needs the binary, which the first command builds; it lies beside the examples or where `JETFAULT` says.
//!
//! Prints tables in Markdown, for docs/measurements.md. Exits with 1 if a bit or a byte is not what it has to be; a
//! speed is a figure and never a failure.

mod construct;
mod golden;
mod memory;
mod runs;
mod speed;

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use jetfault::model::settings::Code;
use jetfault::workload::gpu::driver::{Context, Stream};
use jetfault::workload::gpu::error::GpuError;
use jetfault::workload::gpu::kernels::Kernels;
use jetfault::workload::gpu::self_check::{Finding, KernelCheck, self_check};
use jetfault::workload::gpu::tensor::Tensor;

/// Counts what is wrong, and says it.
#[derive(Debug, Default)]
struct Verdict {
    wrong: usize,
}

impl Verdict {
    /// Notes whether `right`, and prints what is wrong.
    fn expect(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.wrong += 1;
            println!("WRONG: {}", what());
        }
    }
}

fn main() -> ExitCode {
    match check() {
        Ok(Verdict { wrong: 0 }) => ExitCode::SUCCESS,
        Ok(Verdict { wrong }) => {
            eprintln!("error: {wrong} results are wrong");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(4)
        }
    }
}

fn check() -> Result<Verdict, GpuError> {
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    if wanted("construct") {
        construct::measure();
        if parts.len() == 1 {
            return Ok(Verdict::default());
        }
    }
    let start = Instant::now();
    let context = Context::open(0)?;
    let opened = start.elapsed();
    first_kernel(&context)?;
    println!("context after {opened:.0?}, first kernel done after {:.0?}\n", start.elapsed());
    let mut verdict = Verdict::default();
    describe(&context)?;
    if wanted("kernels") {
        list_kernels(&context, &mut verdict)?;
    }
    if wanted("golden") {
        println!("\n## Golden vectors\n\n| code | kernels | vectors | exact |\n|---|---|---|---|");
        for code in [Code::Any, Code::Ptx] {
            match Kernels::new(&context, code) {
                Ok(kernels) => golden::check(&kernels, &mut verdict)?,
                Err(error @ GpuError::NoKernelImage { .. }) => println!("| {code} | {error} | | |"),
                Err(error) => return Err(error),
            }
        }
    }
    if wanted("memory") {
        memory::check(&context, &mut verdict)?;
    }
    if wanted("runs") {
        runs::check(&mut verdict);
    }
    if wanted("speed") {
        speed::measure(&context)?;
    }
    context.close()?;
    Ok(verdict)
}

/// The first kernel of a process, from loading its image to the end of the wait.
fn first_kernel(context: &Rc<Context>) -> Result<(), GpuError> {
    let kernels = Kernels::new(context, Code::Any)?;
    let (x, y) = (Tensor::of(context, &[-1f32; 64])?, Tensor::new(context, 256)?);
    kernels.abs(x.buffer(), y.buffer(), 64, Stream::LEGACY)?;
    context.synchronize()
}

fn describe(context: &Rc<Context>) -> Result<(), GpuError> {
    let facts = context.facts();
    let (free, total) = context.memory_info()?;
    println!("| what | value |\n|---|---|");
    println!("| device | {}, {}, {} multiprocessors |", facts.name, facts.architecture, facts.multiprocessors);
    println!("| driver | CUDA {} |", facts.driver);
    println!("| memory | {} MB free of {} MB |", free / 1_000_000, total / 1_000_000);
    println!("| integrated, pools | {}, {} |", facts.is_integrated, facts.has_pools);
    for code in [Code::Any, Code::Ptx] {
        match Kernels::new(context, code) {
            Ok(kernels) => {
                kernels.load_all()?;
                println!("| code {code} | {} loads |", kernels.target().name());
            }
            Err(error) => println!("| code {code} | {error} |"),
        }
    }
    Ok(())
}

/// Every kernel in both forms, against its twin.
fn list_kernels(context: &Rc<Context>, verdict: &mut Verdict) -> Result<(), GpuError> {
    println!("\n## Kernels\n\n| code | launched | right |\n|---|---|---|");
    for code in [Code::Any, Code::Ptx] {
        let kernels = Kernels::new(context, code)?;
        let checks = self_check(&kernels);
        for KernelCheck { kernel, finding } in &checks {
            verdict.expect(*finding == Finding::Right, || format!("{}: {kernel}: {finding}", kernels.target().name()));
        }
        let right = checks.iter().filter(|check| check.finding == Finding::Right).count();
        println!("| {} | {} | {right} |", kernels.target().name(), checks.len());
    }
    Ok(())
}
