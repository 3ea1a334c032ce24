"""What filters hear of sound: E_t(m) = Σ_k Λ_m(k) |Σ_n w_n x_{tH+n} e^{−2πi kn/N}|², n from 0 to W − 1, k from 0 to N/2."""
