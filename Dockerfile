# The server, with both stores. It runs as a user without rights and listens on loopback, which within a container means
# on nothing: set EBBMARK_LISTEN=0.0.0.0:8080, and make a key in the volume first (docker run … ebbmark keys create …, see
# docs/security.md); or set EBBMARK_ALLOW_PUBLIC=on as well, and publish the port on an address that only those reach who may
# do everything. docker-compose.yml does so, on 127.0.0.1.

FROM node:20-slim AS build
# better-sqlite3 comes as a binary where it can be had, and is compiled where not.
RUN apt-get update && apt-get install -y --no-install-recommends g++ make python3 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
# Before the sources: what is installed changes seldom, and is kept.
COPY package.json package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json build-commonjs.ts ./
COPY src src
RUN npm run build && npm prune --omit=dev --no-audit --no-fund && rm -f dist/.tsbuildinfo

FROM node:20-slim
ENV NODE_ENV=production \
    EBBMARK_STORE=sqlite:/data/ebbmark.db
WORKDIR /app
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY package.json LICENSE ./
COPY schema schema
# Nothing of /app is writable by the one who runs it.
RUN install -d -o node -g node /data
USER node
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:8080/readyz').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "/app/dist/cli.js"]
CMD ["serve"]
