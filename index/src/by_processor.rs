//! Loops compiled for what the processor can do.

/// A function that is compiled for every processor and once more for those with AVX2, whose registers
/// are twice as long. Both give the same results: no addition changes its place.
macro_rules! by_processor {
    ($(#[$doc:meta])* $visible:vis fn $name:ident($($value:ident: $type:ty),*) $(-> $result:ty)? $body:block) => {
        $(#[$doc])*
        $visible fn $name($($value: $type),*) $(-> $result)? {
            #[inline(always)]
            fn run($($value: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn run_avx2($($value: $type),*) $(-> $result)? {
                    run($($value),*)
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has AVX2, which is all that the function asks for.
                    return unsafe { run_avx2($($value),*) };
                }
            }
            run($($value),*)
        }
    };
}

pub(crate) use by_processor;
